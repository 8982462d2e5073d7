"""Rule functions: rewards computed from the text of one response and its ground truth."""

from reward_loop.functions.rules import default_compute_score, register_rule, rule_for

__all__ = ["default_compute_score", "register_rule", "rule_for"]
