"""What a kernel does, in which number format and whether on tensor cores, as far as its name tells.

The rules are data: named regexes in order, of which the first that matches decides. They are matched against the
kernel's own name (without return type, template arguments and parameters, which name other things too), then, if
none matches, against all of it. What none knows is `other`, and reports show its share.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

KernelClass = Literal[
    "gemm",
    "attention",
    "convolution",
    "normalisation",
    "softmax",
    "elementwise",
    "reduction",
    "quantize",
    "reformat",
    "copy",
    "embedding",
    "communication",
    "other",
]
"""quantize covers dequantize; reformat covers cast and transpose; embedding covers gather and scatter."""
DType = Literal["fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "mxfp8", "fp8 or mxfp8", "fp4", "int8", "int4"]
"""fp8 has one scale per tensor, row or large block; mxfp8 one power of two per 32 numbers (OCP Microscaling)."""
FP8S: Final[tuple[DType, ...]] = ("fp8", "mxfp8")
EITHER_FP8: Final[DType] = "fp8 or mxfp8"
"""8-bit floats, and nothing tells how they are scaled."""


class Rule(NamedTuple):
    """A class, why kernels with such names are in it, and the names."""

    kernel_class: KernelClass
    source: str
    pattern: re.Pattern[str]


def _rule(kernel_class: KernelClass, source: str, pattern: str) -> Rule:
    return Rule(kernel_class, source, re.compile(pattern, re.IGNORECASE))


_WORD: Final = r"(?:(?<![a-z])|(?-i:(?=[A-Z][a-z])|(?<=[a-z])(?=[A-Z])))"
"""Where a word of a name begins, in snake_case and camelCase: a broadcast is no cast."""
_MOVING: Final = "Tran?|Resh?|Repl?|Move?|Cast?|Rel(?!u)a?|Conc|Slic"
_SCALING: Final = "Mul|Div|Add|Sub|Min|Max|Roun?"
"""Steps as TensorRT's Myelin spells them in names of kernels: three letters in 8.5, four in 10."""
ONLY_SCALES: Final = re.compile(rf"^__myl\w*?_(?:{_SCALING}|{_MOVING})+(?:_|$)")
"""Kernels that scale, clamp, round, cast and move: to or from 8-bit numbers, they quantize or dequantize."""

RULES: Final = (
    _rule(
        "communication",
        "NCCL, RCCL, NVSHMEM, custom all-reduce",
        r"nccl|rccl|nvshmem|multimem|all_?reduce|all_?gather|reduce_?scatter|cross_device_reduce",
    ),
    _rule("attention", "FlashInfer's attention", r"(?:decode|prefill)with\w*kvcache"),
    _rule(
        "copy", "writes to a key-value cache", r"reshape_and_cache|kv_?cache(?!.*attention)|kv_indices|page_indices"
    ),
    _rule(
        "gemm",
        "Inductor: a product with one row as a reduction; pointwise kernels have it among their origins",
        r"triton_(?:red|per)\w*_(?:add|b)?mm(?:_|$)",
    ),
    _rule(
        "gemm",
        "Inductor's templates of products, with what is fused to them; Triton's experts; llama.cpp",
        r"triton_tem_(?!\w*(?:conv|attention))|^triton_(?:add|b)?mm(?:_|$)|fused_moe_kernel|mul_mat_(?:vec_)?[fq]",
    ),
    _rule("reduction", "which experts a token goes to", r"top_?k_?gating|gating_?top_?k"),
    _rule("reformat", "weights in another order, once", r"repack"),
    _rule(
        "attention",
        "flash, fused and paged attention; cuDNN sdpa",
        r"fmha|flash_?(?:fwd|bwd|attn|attention|infer)|attention|attn_fwd|_attn_|sdpa|\bmha|_mha_|"
        r"MergeStates",
    ),
    _rule(
        "gemm", "TensorRT Myelin: a product, with what is fused to it", r"__myl\w*?_(?-i:(?:[A-Z][a-z]+)*Fc[A-Z_\d])"
    ),
    _rule(
        "convolution",
        "TensorRT Myelin: a convolution (it says correlation) or a transposed one, with what is fused to it",
        r"__myl\w*?_(?-i:(?:[A-Z][a-z]+)*(?:Corr|Deco)[A-Z_\d])",
    ),
    _rule(
        "normalisation",
        "layer, RMS, batch, group norm",
        r"(?:layer|rms|batch|group|instance)_?norm|\bbn_(?:fw|bw)|norm_(?:fw|bw|forward|fwd)",
    ),
    _rule("normalisation", "TensorRT Myelin: mean, variance and 1/sqrt in one kernel", r"__myl\w*_\w*Sqr\w*Div"),
    _rule("normalisation", "PyTorch: the statistics of a layer norm and its gradients", r"RowwiseMoments|GammaBeta"),
    _rule("normalisation", "Inductor: a reduction with rsqrt", r"triton_(?:red|per)\w*rsqrt"),
    _rule("softmax", "softmax by name", r"soft_?max"),
    _rule("softmax", "TensorRT Myelin: max, exp and sum in one kernel", r"__myl\w*Maxr?SubExp"),
    _rule(
        "reformat",
        "layout changes around convolutions, and not cuDNN's convolutions that change it on the way",
        r"^(?!\S*cudnn_\w*(?:nhwc2|nchw2)).*?(?:nchwTo|nhwcTo|nchw2|nhwc2|im2col|col2im)",
    ),
    _rule(
        "convolution",
        "cuDNN, TensorRT, implicit GEMM, Winograd, FFT",
        r"conv(?!er|ect|ex|oy)|fprop|dgrad|wgrad|implicit_(?:gemm|convolve)|winograd|[shi]\d*cudnn|fft[12]d|"
        r"cask\w*::compute",
    ),
    _rule(
        "gemm",
        "cuBLAS, cuBLASLt (nvjet), CUTLASS, xmma, Tensile",
        r"(?<!fb)gemm|gemv|matmul|nvjet|^cijk_|splitKreduce|\bbmm_|marlin|cublasLt|"
        r"cutlass::Kernel|cutlass_\d+_",
    ),
    _rule("quantize", "quantize and dequantize", rf"{_WORD}(?:de|re|fake)?quant(?!il|it|um)"),
    _rule(
        "quantize",
        "TensorRT Myelin: scale, clamp, round and cast, and moves",
        rf"__myl\w*?_(?=\w*Roun?)(?-i:(?:{_SCALING}|{_MOVING})+)(?:_|$)",
    ),
    _rule("quantize", "TensorRT Myelin: scales that the numbers at hand give", r"__myl\w*?_(?-i:Dyna)(?:_|$)"),
    _rule("elementwise", "rotary position embedding: arithmetic, no lookup", r"rotary|\brope"),
    _rule(
        "embedding",
        "lookups, gather, scatter",
        rf"embedding|embs|{_WORD}gather|scatter(?!ing)|index_?select|indexSelect|index_put|indexing_backward|"
        r"vectorized_index|index_elementwise|lookup",
    ),
    _rule("embedding", "TensorRT Myelin: a gather", r"__myl\w*?_(?-i:(?:[A-Z][a-z]+)*Gath[A-Z_\d])"),
    _rule(
        "reformat",
        "transpose, permute, cast; TensorRT reformat",
        rf"^(?!\S*__myl).*?(?:transpose|permute|reformat|{_WORD}(?:up|down|type)?cast|convert(?!er)|copyVectorized|"
        r"layout(?!Left|Right|Stride|<)|tensorTransform|shuffle)",
    ),
    _rule(
        "reformat",
        "TensorRT Myelin: only transposes, reshapes, moves, replications and casts",
        rf"__myl\w*?_(?=\w*(?:Tra|Rep|Cas))(?-i:(?:{_MOVING})+)(?:_|$)",
    ),
    _rule(
        "copy",
        "concatenate, split, slice, expand, pad",
        rf"concat|CatArray|split(?!K)|slice|expand|\bpad|copy|memcpy|memset|repeat|{_WORD}roll_|stack",
    ),
    _rule("copy", "TensorRT Myelin: moves only", r"__myl\w*?_(?-i:(?:Move?|Resh?|Conc|Slic)+)(?:_|$)"),
    _rule(
        "reduction",
        "sums, extrema, scans, sorts, pooling, triton reductions",
        rf"reduc|triton_(?:red|per)_|sum_?kernel|argm(?:ax|in)|top_?k|sort|{_WORD}scan|cumsum|pool|"
        r"histogram|\bdot_kernel|softmax|segments",
    ),
    _rule(
        "reduction",
        "TensorRT Myelin: a sum, a mean or an extremum; both extrema in a row are a clamp",
        r"__myl\w*(?:Sum|Mean|(?<!Min)Max(?!Min)|(?<!Max)Min(?!Max))",
    ),
    _rule(
        "elementwise",
        "PyTorch, ONNX Runtime, Inductor, TensorRT pointwise; what Julia and XLA call broadcasts",
        r"element_?wise|triton_poi_|pointwise|unary|binary|generatedNativePointwise|__myl|"
        r"EigenMetaKernel|op_(?:generic_)?tensor|broadcast",
    ),
    _rule(
        "elementwise",
        "activations and arithmetic by name",
        rf"gelu|relu|silu|sigmoid|tanh|act_and_mul|{_WORD}bias|scalePacked|dropout|clamp|fill|arange|axpy|"
        rf"\bscal_|\badd\b|\bmul\b|random|{_WORD}where",
    ),
)
"""In order of precedence. Checked against the kernels in nsys and Kineto captures of ONNX Runtime 1.31, torch 2.x,
TensorRT 8.5 and 10, TensorFlow, vLLM and SGLang."""

_WHOLE_NAME_FIRST: Final = (
    _rule(
        "reformat",
        "PyTorch: a copy that casts or changes strides, inside an elementwise kernel",
        r"(?:direct|float16|bfloat16|float8|half)\w*_copy_kernel",
    ),
)
"""Rules for which the template arguments say more than the kernel's own name."""

_TF32: Final = re.compile(
    r"tf32|(?<!75_tensorop_)(?<![a-z\d])s168[48](?:gemm|fprop|dgrad|wgrad)|tensorop_s\d+x\d+x8gemm|tensor\d+x\d+x[48](?!\d)",
    re.IGNORECASE,
)
"""By name, or by the shape of the instruction: numbers of 32 bits reach tensor cores as TF32, 4 or 8 at a time."""
_DTYPES: Final[tuple[tuple[DType, re.Pattern[str]], ...]] = (
    ("fp4", re.compile(r"e2m1|fp4|(?:nv|mx)_?f(?:loat)?4|ue[48]m[03]xf4|nvjet_(?:sm\d+_)?oo", re.IGNORECASE)),
    (
        "mxfp8",
        re.compile(
            r"mx_?(?:f(?:p|loat)?8|e4m3|e5m2)|[ab]vec32ue8m0|(?:e4m3|e5m2).*e8m0|e8m0.*(?:e4m3|e5m2)",
            re.IGNORECASE | re.DOTALL,
        ),
    ),
    ("fp8", re.compile(r"(?<!u)e4m3|e5m2|fp8|float8|(?<![a-z\d])f8_f8|nvjet_(?:sm\d+_)?qq", re.IGNORECASE)),
    ("int4", re.compile(r"int4(?!_t)|[su]4[su]4|awq|gptq", re.IGNORECASE)),
    ("int8", re.compile(r"int8(?!_t)|[iu]8[iu]8|imma|(?<![a-z])i(?:\d{4,6})?gemm|i16832|i8816|s8_s8", re.IGNORECASE)),
    (
        "bf16",
        re.compile(r"bf16|bfloat16|nvjet_(?:sm\d+_)?tst|^Cijk_\w*?_BB?S_|^Cijk_\w*?_B_BS_|DF16b", re.IGNORECASE),
    ),
    (
        "fp16",
        re.compile(
            r"fp16|f16|\b(?:__)?half\b|\bHalf\b|nvjet_(?:sm\d+_)?hsh|h(?:16816|1688|884)gemm|hgemm|"
            r"hcudnn|^Cijk_\w*?_HH?S_",
            re.IGNORECASE,
        ),
    ),
    ("tf32", _TF32),
    ("fp64", re.compile(r"\bdouble\b|dgemm|f64f64", re.IGNORECASE)),
    ("fp32", re.compile(r"\bfloat\b|sgemm|f32f32|fp32|scudnn|^Cijk_\w*?_SB_", re.IGNORECASE)),
)
"""The narrowest format in the name, since wide ones name accumulators. Formats of scales are none of numbers: UE4M3
goes with FP4 (`cutlass3x_sm120_bstensorop_s16864gemm_block_scaled_ue4m3xe2m1`, `nvjet_sm100_ootst_…_Avec16UE4M3`),
UE8M0 with MXFP8 (`cutlass3x_sm120_bstensorop_s16832gemm_block_scaled_ue8m0xe4m3`, `nvjet_qqtst_…_Avec32UE8M0`, CuTe's
`…f8E4M3FN…f8E8M0FNU`, trtllm-gen's `bmm_MxE4m3`). So they are called in published traces of TensorRT 10.11, cuBLAS,
CUTLASS and SGLang; none was at hand here."""
_SPELLS_SCALES: Final = re.compile(
    r"nvjet|_xmma_|^(?:void )?cutlass|^kernel_cutlass|^bmm_|fmhaSm\d|sm_?(?:8\d|90)(?!\d)", re.IGNORECASE
)
"""Names of generators that spell block scales where there are any, and of kernels for GPUs before them (10.0)."""
_XMMA_TYPES: Final[dict[str, DType]] = {
    **dict.fromkeys(("e4m3", "e5m2"), "fp8"),
    **{"e2m1": "fp4", "bf16": "bf16", "tf32": "tf32", "f16": "fp16", "f32": "fp32", "f64": "fp64"},
    **dict.fromkeys(("i8", "u8"), "int8"),
}
_XMMA: Final = re.compile(r"_({0})({0}|i32)_({0})({0}|i32)_({0}|i32)(?:_|$)".format("|".join(_XMMA_TYPES)))
"""A and C, B and the accumulator, and the scale, as TensorRT and cuBLAS name them: `f16e4m3_f16f32_f32` writes FP8
and computes in FP16, `f32f32_tf32f32_f32` reads FP32 and computes in TF32."""
_TENSOR_CORES: Final = re.compile(
    r"nvjet|wgmma|gmma|hmma|imma|(?<![fx])mma_|tensor(?:op|\d)|tcgen05|utcmma|[shi](?:16816|16832|1688|884)|cutlass_tensorop|"
    r"warpgroupsize|sm(?:90|1[012]\d)_xmma|_MI\d+x\d+",
    re.IGNORECASE,
)
_NO_TENSOR_CORES: Final = re.compile(
    r"ffma|simt|(?<![a-z\d])(?:s|d|gc|c|z)gemm|[sd]cudnn|convolve_sgemm", re.IGNORECASE
)


@dataclass(frozen=True)
class KernelKind:
    """What a name tells; None is "it does not tell"."""

    kernel_class: KernelClass
    dtype: DType | None
    tensor_cores: bool | None


@functools.cache
def classify(name: str) -> KernelKind:
    """Class, number format and tensor-core use of a kernel by its demangled name."""
    return KernelKind(_class_of(name), _dtype_of(name), _tensor_cores_of(name))


def _class_of(name: str) -> KernelClass:
    for rules, text in ((_WHOLE_NAME_FIRST, name), (RULES, own_name(name)), (RULES, name)):
        for rule in rules:
            if rule.pattern.search(text):
                return rule.kernel_class
    return "other"


def _dtype_of(name: str) -> DType | None:
    if types := _XMMA.search(name):
        dtype = _XMMA_TYPES.get(types.group(3)) if types.group(1) == "f32" else _XMMA_TYPES[types.group(1)]
        return "tf32" if dtype == "fp32" and _TF32.search(name) else dtype
    dtype = next((dtype for dtype, pattern in _DTYPES if pattern.search(name)), None)
    return EITHER_FP8 if dtype == "fp8" and not _SPELLS_SCALES.search(name) else dtype


def _tensor_cores_of(name: str) -> bool | None:
    if _NO_TENSOR_CORES.search(name):
        return False
    return True if _TENSOR_CORES.search(name) else None


def own_name(name: str) -> str:
    """`void ns::kernel<float, 4>(float *)` → `ns::kernel`."""
    name = re.sub(r"\(anonymous namespace\)|<?unnamed>", "anonymous", name)
    name = re.sub(r"^(?:std::enable_if<.*?::type|void|static)\s+", "", name)
    return re.split(r"[<(]", name, maxsplit=1)[0]
