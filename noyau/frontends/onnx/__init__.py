"""ONNX models as graphs: `read` a file, then `import_model`. MissingExtraError where onnx is not installed."""

from noyau.errors import MissingExtraError

try:
    import onnx
except ModuleNotFoundError as error:
    raise MissingExtraError("onnx is not installed; run: pip install 'noyau-kernels[onnx]'") from error

from noyau.frontends.onnx.boundaries import DTYPES, widen_types
from noyau.frontends.onnx.boundary_types import Inference
from noyau.frontends.onnx.importer import COLUMNS, ImportedModel, import_model, partition_model
from noyau.frontends.onnx.reader import parse, read
from noyau.frontends.onnx.upgrade import conversion, inline_functions, upgrade
from noyau.frontends.onnx.verifier import checker_fault, verify

__all__ = [
    "COLUMNS", "DTYPES", "ImportedModel", "Inference", "checker_fault", "conversion", "import_model",
    "inline_functions", "onnx", "parse", "partition_model", "read", "upgrade", "verify", "widen_types",
]  # fmt: skip
