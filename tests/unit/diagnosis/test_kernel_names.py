"""How kernels are named in sentences."""

from __future__ import annotations

from inferprof.diagnosis.kernel_time import distinct

UNARY = "void cuda::unary<float, (int)4, cuda::OP_{}<float>>(const float *)"


def test_kernels_of_one_name_are_told_apart_by_the_arguments_of_their_template() -> None:
    names = distinct([UNARY.format("Sin"), UNARY.format("Cos"), "gemm<float>(int)"])
    assert "OP_Sin" in names[0]
    assert "OP_Cos" in names[1]
    assert names[2] == "gemm"


def test_one_kernel_has_its_own_name() -> None:
    assert distinct([UNARY.format("Sin")]) == ["cuda::unary"]
