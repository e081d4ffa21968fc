"""Command lines of which a part belongs to the program that is started, not to us."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand

# `ctx` below is a Click context, whose class has no public name in Typer.
PASSED_ON = "clusterkit.passed_on"


class AfterDashes(TyperCommand):
    """`exec [INVENTORY] -- CMD ARG…`: what follows `--` is in `context.meta[PASSED_ON]`, else None."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse what stands before the dashes."""
        ctx.meta[PASSED_ON] = args[args.index("--") + 1 :] if "--" in args else None
        return super().parse_args(ctx, args[: args.index("--")] if "--" in args else args)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """The usage line, with the command at its end."""
        return ["[OPTIONS]", "[INVENTORY]", "--", "CMD", "[ARG]..."]


class AfterScript(TyperCommand):
    """`launch [OPTION…] INVENTORY [OPTION…] SCRIPT ARG…`: SCRIPT's are in `context.meta[PASSED_ON]`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse up to the second word that is no option and no option's value."""
        end = self._end_of_script(ctx, args)
        ctx.meta[PASSED_ON] = args[end:]
        return super().parse_args(ctx, args[:end])

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """The usage line, with the script's own arguments at its end."""
        return ["[OPTIONS]", "INVENTORY", "SCRIPT", "[ARG]..."]

    def _end_of_script(self, ctx: Any, args: list[str]) -> int:
        takes_value = {
            name
            for parameter in self.get_params(ctx)
            if parameter.param_type_name == "option" and not getattr(parameter, "is_flag", False)
            for name in parameter.opts
        }
        positionals = 0
        value_follows = False
        for index, word in enumerate(args):
            if value_follows:
                value_follows = False
            elif word.startswith("-") and word != "-":
                value_follows = word in takes_value
            else:
                positionals += 1
                if positionals == 2:
                    return index + 1
        return len(args)
