"""The help of the command line: commands in groups, each under a title."""

from __future__ import annotations

from typing import Any

from typer.core import TyperGroup, TyperOption

TEST = "Test a site"
COMPARE = "Compare and judge"
BUILD = "Build software, write jobs"
OPERATE = "Operate nodes"
LABS = "Use labs, test Seatrial"


class Panels(TyperGroup):
    """A group that lists its commands under the titles of their ``rich_help_panel``.

    Typer's own panels are boxes: with them, the groups do not fit on a screen of 25 lines.
    """

    def get_params(self, ctx: Any) -> Any:
        params = super().get_params(ctx)
        for one in params:
            # --install-completion is what users need
            if isinstance(one, TyperOption) and one.name == "show_completion":
                one.hidden = True
        return params

    def format_help(self, ctx: Any, formatter: Any) -> None:
        super().format_help(ctx, formatter)
        formatter.buffer = ["".join(formatter.buffer).replace("\n\n", "\n")]  # no blank lines

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        shown = [self.commands[name] for name in self.list_commands(ctx)]
        longest = max(len(str(one.name)) for one in shown)
        for title in (TEST, COMPARE, BUILD, OPERATE, LABS):
            formatter.write_heading(title)
            formatter.indent()
            formatter.write_dl(
                [
                    (str(one.name).ljust(longest), one.get_short_help_str(formatter.width))
                    for one in shown
                    if getattr(one, "rich_help_panel", None) == title
                ]
            )
            formatter.dedent()
