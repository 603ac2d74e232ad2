"""Writes elements of SVG, of which the drawings of topologies consist."""


def element(tag: str, /, *content: str, **attributes: str | float) -> str:
    """An element of SVG, whose `attributes` keep their order; _ in a name is -, one at its end falls.

    Lengths have pixels as their unit; a float has one digit after the point.

    content is SVG, so that text goes through `escape` first.
    """
    said = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{f"{value:.1f}" if isinstance(value, float) else value}"'
        for name, value in attributes.items()
    )
    return f"<{tag}{said}>{''.join(content)}</{tag}>" if content else f"<{tag}{said}/>"
