"""The numbers of cuDNN's backend interface, for its graph API: descriptor kinds and attributes (cudnn_graph.h)."""

from __future__ import annotations

from ctypes import c_bool, c_char, c_double, c_float, c_int, c_int64, c_void_p
from enum import Enum, IntEnum
from typing import Any


class Kind(IntEnum):
    """What a descriptor describes."""

    POINTWISE = 0
    CONVOLUTION = 1
    ENGINE = 2
    ENGINE_CONFIG = 3
    ENGINE_HEURISTICS = 4
    EXECUTION_PLAN = 5
    KNOB_CHOICE = 7
    KNOB_INFO = 8
    CONVOLUTION_FORWARD = 10
    CONVOLUTION_BACKWARD_WEIGHT = 11
    CONVOLUTION_BACKWARD_DATA = 12
    POINTWISE_OPERATION = 13
    OPERATION_GRAPH = 15
    VARIANT_PACK = 16
    TENSOR = 17
    DEVICE_PROPERTIES = 38


class Type(Enum):
    """How values of an attribute are passed: cuDNN's number for the type, and its C type."""

    HANDLE = 0, c_void_p
    DATA_TYPE = 1, c_int
    BOOLEAN = 2, c_bool
    INT64 = 3, c_int64
    FLOAT = 4, c_float
    DOUBLE = 5, c_double
    POINTER = 6, c_void_p
    CONVOLUTION_MODE = 7, c_int
    HEURISTIC_MODE = 8, c_int
    KNOB = 9, c_int
    NUMERICAL_NOTE = 11, c_int
    POINTWISE_MODE = 14, c_int
    DESCRIPTOR = 15, c_void_p
    BEHAVIOR_NOTE = 19, c_int
    CHAR = 24, c_char

    def __init__(self, number: int, element: Any) -> None:
        self.number = number
        self.element = element


class Attribute(Enum):
    """The attributes that can be set on a descriptor or read from it, with the type of their values.

    Scaling factors have the type of the computation: fp64 expects a double, and a float would be read as garbage.
    """

    POINTWISE_MODE = 0, Type.POINTWISE_MODE
    POINTWISE_COMPUTE_TYPE = 1, Type.DATA_TYPE
    CONVOLUTION_COMPUTE_TYPE = 100, Type.DATA_TYPE
    CONVOLUTION_MODE = 101, Type.CONVOLUTION_MODE
    CONVOLUTION_DILATIONS = 102, Type.INT64
    CONVOLUTION_STRIDES = 103, Type.INT64
    CONVOLUTION_POST_PADDINGS = 104, Type.INT64
    CONVOLUTION_PRE_PADDINGS = 105, Type.INT64
    CONVOLUTION_SPATIAL_DIMS = 106, Type.INT64
    HEURISTICS_MODE = 200, Type.HEURISTIC_MODE
    HEURISTICS_GRAPH = 201, Type.DESCRIPTOR
    HEURISTICS_RESULTS = 202, Type.DESCRIPTOR
    HEURISTICS_DEVICE = 204, Type.DESCRIPTOR
    CONFIG_ENGINE = 300, Type.DESCRIPTOR
    CONFIG_KNOB_CHOICES = 302, Type.DESCRIPTOR
    CONFIG_WORKSPACE_BYTES = 303, Type.INT64
    PLAN_HANDLE = 400, Type.HANDLE
    PLAN_CONFIG = 401, Type.DESCRIPTOR
    PLAN_WORKSPACE_BYTES = 402, Type.INT64
    PLAN_JSON = 405, Type.CHAR
    PLAN_DEVICE = 407, Type.DESCRIPTOR
    KNOB_TYPE = 600, Type.KNOB
    KNOB_VALUE = 601, Type.INT64
    FORWARD_ALPHA = 700, Type.FLOAT
    FORWARD_ALPHA_FP64 = 700, Type.DOUBLE
    FORWARD_BETA = 701, Type.FLOAT
    FORWARD_BETA_FP64 = 701, Type.DOUBLE
    FORWARD_CONVOLUTION = 702, Type.DESCRIPTOR
    FORWARD_W = 703, Type.DESCRIPTOR
    FORWARD_X = 704, Type.DESCRIPTOR
    FORWARD_Y = 705, Type.DESCRIPTOR
    BACKWARD_DATA_ALPHA = 706, Type.FLOAT
    BACKWARD_DATA_ALPHA_FP64 = 706, Type.DOUBLE
    BACKWARD_DATA_BETA = 707, Type.FLOAT
    BACKWARD_DATA_BETA_FP64 = 707, Type.DOUBLE
    BACKWARD_DATA_CONVOLUTION = 708, Type.DESCRIPTOR
    BACKWARD_DATA_W = 709, Type.DESCRIPTOR
    BACKWARD_DATA_DX = 710, Type.DESCRIPTOR
    BACKWARD_DATA_DY = 711, Type.DESCRIPTOR
    BACKWARD_WEIGHT_ALPHA = 712, Type.FLOAT
    BACKWARD_WEIGHT_ALPHA_FP64 = 712, Type.DOUBLE
    BACKWARD_WEIGHT_BETA = 713, Type.FLOAT
    BACKWARD_WEIGHT_BETA_FP64 = 713, Type.DOUBLE
    BACKWARD_WEIGHT_CONVOLUTION = 714, Type.DESCRIPTOR
    BACKWARD_WEIGHT_DW = 715, Type.DESCRIPTOR
    BACKWARD_WEIGHT_X = 716, Type.DESCRIPTOR
    BACKWARD_WEIGHT_DY = 717, Type.DESCRIPTOR
    POINTWISE_DESCRIPTOR = 750, Type.DESCRIPTOR
    POINTWISE_X = 751, Type.DESCRIPTOR
    POINTWISE_B = 752, Type.DESCRIPTOR
    POINTWISE_Y = 753, Type.DESCRIPTOR
    GRAPH_HANDLE = 800, Type.HANDLE
    GRAPH_OPERATIONS = 801, Type.DESCRIPTOR
    GRAPH_ENGINE_COUNT = 802, Type.INT64
    TENSOR_ALIGNMENT_BYTES = 900, Type.INT64
    TENSOR_DATA_TYPE = 901, Type.DATA_TYPE
    TENSOR_SIZES = 902, Type.INT64
    TENSOR_STRIDES = 903, Type.INT64
    TENSOR_UID = 906, Type.INT64
    TENSOR_IS_VIRTUAL = 907, Type.BOOLEAN
    PACK_UIDS = 1000, Type.INT64
    PACK_POINTERS = 1001, Type.POINTER
    PACK_WORKSPACE = 1003, Type.POINTER
    KNOB_INFO_TYPE = 1200, Type.KNOB
    KNOB_INFO_MOST = 1201, Type.INT64
    KNOB_INFO_LEAST = 1202, Type.INT64
    KNOB_INFO_STEP = 1203, Type.INT64
    ENGINE_GRAPH = 1300, Type.DESCRIPTOR
    ENGINE_INDEX = 1301, Type.INT64
    ENGINE_KNOBS = 1302, Type.DESCRIPTOR
    ENGINE_NUMERICAL_NOTES = 1303, Type.NUMERICAL_NOTE
    ENGINE_BEHAVIOR_NOTES = 1305, Type.BEHAVIOR_NOTE
    ENGINE_DEVICE = 1307, Type.DESCRIPTOR
    DEVICE_JSON = 2702, Type.CHAR

    def __init__(self, number: int, type_: Type) -> None:
        self.number = number
        self.type = type_


class NumericalNote(IntEnum):
    """cuDNN's notes about an engine's arithmetic."""

    TENSOR_CORE = 0
    DOWN_CONVERT_INPUTS = 1
    REDUCED_PRECISION_REDUCTION = 2
    FFT = 3
    NONDETERMINISTIC = 4
    WINOGRAD = 5
    WINOGRAD_TILE_4X4 = 6
    WINOGRAD_TILE_6X6 = 7
    WINOGRAD_TILE_13X13 = 8
    STRICT_NAN_PROPAGATION = 9


class BehaviorNote(IntEnum):
    """cuDNN's notes about how an engine works."""

    RUNTIME_COMPILATION = 0
    REQUIRES_FILTER_INT8X32_REORDER = 1
    REQUIRES_BIAS_INT8X32_REORDER = 2
    SUPPORTS_CUDA_GRAPH_NATIVE_API = 3
    CUBLASLT_DEPENDENCY = 4


# CUDNN_KNOB_TYPE_COUNTS: no engine has more knobs than there are kinds of knob.
KNOB_KINDS = 44
