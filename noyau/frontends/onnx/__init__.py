"""ONNX models as graphs: `read` a file, then `import_model`."""

from noyau.frontends.onnx.importing import Imported, import_model
from noyau.frontends.onnx.reading import read
from noyau.frontends.onnx.wiring import wired

__all__ = ["Imported", "import_model", "read", "wired"]
