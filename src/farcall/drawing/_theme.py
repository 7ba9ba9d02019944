"""The colours of pictures in light and dark themes, as CSS variables that a page may override."""

from __future__ import annotations

_SELF = ".farcall-plan"
# name -> light, dark. A page overrides `page` by setting `--farcall-page`, and so on.
_COLORS = {
    "page": ("#ffffff", "#0d1117"),
    "ink": ("#1f2328", "#e6edf3"),
    "soft": ("#59636e", "#9198a1"),
    "line": ("#818b98", "#7d8590"),
    "box": ("#ffffff", "#161b22"),
    "frame": ("#b7bfc8", "#4a525c"),
    "found": ("#bf8700", "#e3b341"),
    "tint": ("0.13", "0.2"),
}
# How pages say that they are light or dark: JupyterLab, VS Code, Sphinx's furo.
_LIGHT = ('[data-jp-theme-light="true"]', ".vscode-light", 'body[data-theme="light"]')
_DARK = ('[data-jp-theme-light="false"]', ".vscode-dark", 'body[data-theme="dark"]')


def theme() -> str:
    """The CSS that sets the variables: by the reader's system, unless the page around says otherwise."""
    light, dark = _block(0), _block(1)
    return "\n".join(
        (
            f"{_SELF} {light}",
            f"@media (prefers-color-scheme: dark) {{ {_SELF} {dark} }}",
            f"{_below(_LIGHT)} {light}",
            f"{_below(_DARK)} {dark}",
        )
    )


def _block(which: int) -> str:
    colors = " ".join(f"--{name}: var(--farcall-{name}, {of[which]});" for name, of in _COLORS.items())
    return f"{{ {colors} }}"


def _below(parents: tuple[str, ...]) -> str:
    return ", ".join(f"{parent} {_SELF}" for parent in parents)
