"""A group of verbs that names those there are."""

from __future__ import annotations

import click

__all__ = ["VerbGroup"]


class VerbGroup(click.Group):
    """A group that answers an unknown verb with the one that was meant, or with all."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the verb; see ``click.Group``."""
        verbs = self.list_commands(ctx)
        if args and args[0] not in verbs and not args[0].startswith("-"):
            from difflib import get_close_matches  # noqa: PLC0415 - only on the way to an error

            near = get_close_matches(args[0], verbs, 1)
            ctx.fail(
                f"no verb {args[0]!r}; "
                + (f"did you mean {near[0]}?" if near else f"accepted are {', '.join(verbs)}")
            )
        return super().resolve_command(ctx, args)
