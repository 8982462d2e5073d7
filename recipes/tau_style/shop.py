"""A shop as tau-bench has them: orders, tools that change them, customers who want something, and a policy."""

from __future__ import annotations

import copy
import re
from dataclasses import dataclass, field
from typing import Any

Orders = dict[str, dict[str, Any]]

ORDERS: Orders = {
    "W1001": {"customer": "mei", "status": "pending", "item": "lamp", "address": "3 Elm Street"},
    "W1002": {"customer": "mei", "status": "delivered", "item": "kettle", "address": "3 Elm Street"},
    "W1003": {"customer": "omar", "status": "pending", "item": "desk", "address": "8 Hill Road"},
}
POLICY = (
    "Only pending orders can be cancelled or sent elsewhere. Only delivered orders can be returned. Ask for the order's number."
)

_CALL = re.compile(r"CALL (\w+)\(([^)]*)\)")


@dataclass(frozen=True, slots=True)
class Scenario:
    """A customer: who they are, what they want, and how the orders must be at the end; empty: as at the beginning."""

    user_persona: str
    wants: str
    order: str
    goal: dict[str, Any] = field(default_factory=dict[str, Any])

    @property
    def expected(self) -> Orders:
        """The orders as they must be at the end."""
        orders = copy.deepcopy(ORDERS)
        orders[self.order] |= self.goal
        return orders


SCENARIOS = (
    Scenario("Mei, in a hurry", "cancel the lamp", "W1001", {"status": "cancelled"}),
    Scenario("Mei, friendly", "return the kettle", "W1002", {"status": "returned"}),
    Scenario("Omar, who has moved", "have the desk sent to 5 Lake View", "W1003", {"address": "5 Lake View"}),
    Scenario("Mei, who insists", "cancel the kettle", "W1002"),
)


def run_tools(message: str, orders: Orders) -> list[str]:
    """Do what a message calls for, in place; return a line for each call that says what came of it."""
    return [_call(name, [part.strip() for part in arguments.split(",")], orders) for name, arguments in _CALL.findall(message)]


def spoken(message: str) -> str:
    """Return a message without its calls."""
    return _CALL.sub("", message).strip()


def _call(name: str, arguments: list[str], orders: Orders) -> str:
    order = orders.get(arguments[0])
    if order is None:
        return f"{name}: there is no order {arguments[0]}"
    match name, order["status"], arguments[1:]:
        case "cancel_order", "pending", []:
            order["status"] = "cancelled"
        case "return_order", "delivered", []:
            order["status"] = "returned"
        case "change_address", "pending", [address]:
            order["address"] = address
        case _:
            return f"{name}: refused for an order that is {order['status']}"
    return f"{name}: done"
