"""The commands by name. A command is imported only when it is called: each needs only part of the code, and `hakmem run` starts programs
that take less time than importing all of it."""

from __future__ import annotations

from importlib import import_module

import click

from hakmem.command_line import CommandLine

_COMMANDS = {
    "arm": "request_commands:arm_command",
    "bench": "bench.command:bench",
    "blackbox": "blackbox_command:blackbox_command",
    "collect": "request_commands:collect_command",
    "demo": "demo_command:demo_command",
    "diff": "insight_commands:diff",
    "inspect": "outside_commands:inspect_command",
    "metrics": "outside_commands:metrics_command",
    "options": "library_commands:options_command",
    "profile": "insight_commands:profile",
    "resident": "outside_commands:resident_command",
    "run": "run_command:run_command",
    "stats": "library_commands:stats_command",
    "top": "outside_commands:top_command",
}


class _Commands(CommandLine):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(_COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in _COMMANDS:
            return None
        module, command = _COMMANDS[name].split(":")
        return getattr(import_module(f"hakmem.{module}"), command)


def _show_version(ctx: click.Context, option: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        from hakmem import __version__

        click.echo(f"hakmem, version {__version__}")
        ctx.exit()


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_show_version, help="Show the version and exit."
)
def main() -> None:
    """Run programs under hakmem, a drop-in malloc, and see what it does for them."""
