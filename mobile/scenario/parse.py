"""Whether sources parse: Swift and Kotlin, where no compiler (or no Android) is to be had.

    python parse.py FILE…
"""

import sys

import tree_sitter
import tree_sitter_kotlin
import tree_sitter_swift

PARSERS = {
    ".swift": tree_sitter.Parser(tree_sitter.Language(tree_sitter_swift.language())),
    ".kt": tree_sitter.Parser(tree_sitter.Language(tree_sitter_kotlin.language())),
    ".kts": tree_sitter.Parser(tree_sitter.Language(tree_sitter_kotlin.language())),
}


def faults(node, text):
    """The places that the grammar has no rule for."""
    if node.type == "ERROR" or node.is_missing:
        line = node.start_point[0] + 1
        yield f"{line}: {text[node.start_byte:node.end_byte][:60].decode(errors='replace')!r}"
    elif node.has_error:
        for child in node.children:
            yield from faults(child, text)


def main():
    wrong = 0
    for path in sys.argv[1:]:
        with open(path, encoding="utf-8") as file:
            text = file.read()
        # Two things that Swift's compiler knows and the grammar does not: an attribute, and a closure of an empty tuple.
        text = text.replace("@_documentation(visibility: private)", "")
        text = text.replace("{ () }", "{ Void() }").encode()
        parser = next(parser for end, parser in reversed(PARSERS.items()) if path.endswith(end))
        found = list(faults(parser.parse(text).root_node, text))
        for fault in found:
            print(f"{path}:{fault}")
        wrong += bool(found)
    print(f"{len(sys.argv) - 1} files, {wrong} that do not parse")
    return wrong > 0


if __name__ == "__main__":
    sys.exit(main())
