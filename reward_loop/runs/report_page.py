"""What turns a template into a page: strict, escaping, with the plots and the style that all reports share."""

from __future__ import annotations

from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from reward_loop.runs import report_plots

_PLOTS = ("show_count", "show_number", "show_share", "show_seconds", "distribution_svg", "latency_svg", "weight_svg", "curve_svg")


def page_environment(*folders: Path) -> Environment:
    """Return the environment of templates that lie in these folders or beside this file."""
    environment = Environment(
        loader=FileSystemLoader([*folders, Path(__file__).parent]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals.update({name: getattr(report_plots, name) for name in _PLOTS})
    return environment
