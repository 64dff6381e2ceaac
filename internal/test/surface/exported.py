"""Prints the public names of the Python client, one a line: classes, their methods and fields, and functions."""

import ast
import pathlib
import sys

source = pathlib.Path(sys.argv[1])
public = ast.literal_eval(next(
    node.value for node in ast.parse((source / "__init__.py").read_text()).body
    if isinstance(node, ast.Assign) and node.targets[0].id == "__all__"
))


def show(prefix: str, node: ast.stmt) -> None:
    if isinstance(node, ast.ClassDef):
        bases = ", ".join(ast.unparse(base) for base in node.bases)
        print(f"{prefix}class {node.name}({bases})")
        for member in node.body:
            show(f"{prefix}{node.name}.", member)
    elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and (node.name == "__init__" or node.name[0] != "_"):
        kind = "async def" if isinstance(node, ast.AsyncFunctionDef) else "def"
        decorators = "".join(f"@{ast.unparse(decorator)} " for decorator in node.decorator_list)
        returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
        print(f"{prefix}{decorators}{kind} {node.name}({ast.unparse(node.args)}){returns}")
    elif isinstance(node, ast.AnnAssign) and node.target.id[0] != "_":
        print(f"{prefix}{node.target.id}: {ast.unparse(node.annotation)}")


found = set()
for path in sorted(source.glob("*.py")):
    for node in ast.parse(path.read_text()).body:
        if getattr(node, "name", None) in public:
            found.add(node.name)
            show("", node)
assert found == set(public), set(public) - found
