"""The law that no module imports itself by way of others."""

from tests.laws.source import Modules, imports


def import_cycle(graph: dict[str, list[str]]) -> list[str]:
    """Return the modules of one import cycle, in the order of the imports; [] if there is none."""
    is_done: dict[str, bool] = {}
    path: list[str] = []

    def visit(module: str) -> list[str]:
        if module in is_done:
            return [] if is_done[module] else path[path.index(module) :]
        is_done[module] = False
        path.append(module)
        for imported in graph.get(module, ()):
            if cycle := visit(imported):
                return cycle
        path.pop()
        is_done[module] = True
        return []

    return next((cycle for module in graph if (cycle := visit(module))), [])


def import_graph(modules: Modules, package: str) -> dict[str, list[str]]:
    """Return what each module imports, what only a type checker imports included."""
    trees = {
        "odradek." + module.removesuffix(".py").removesuffix("/__init__").replace("/", "."): tree
        for module, tree in modules
        if module.startswith(f"{package}/")
    }
    return {
        module: [
            found
            for name in imports(tree)
            # a name is a module, or something in the module before its last dot
            for found in (name if name in trees else name.rpartition(".")[0],)
            if found in trees and found != module
        ]
        for module, tree in trees.items()
    }
