"""The further points of families of tests, by file: what they show, another point of the family shows by default.

They run by hand (pytest -m long). A pattern is searched in the name of a test with its parameters; each must fit some.
"""

from __future__ import annotations

BY_HAND: dict[str, tuple[str, ...]] = {
    # The same kernel in a second dtype, layout or size.
    "test_nn_catalogue": (
        r"no_kernel_is_wrong\[cross_entropy_(sum|each)",
        r"is_the_rounded_truth\[(log_softmax|rms_norm|add_layer_norm|silu|piecewise_linear|cross_entropy_each)-float64",
        r"is_the_rounded_truth\[(cross_entropy_mean|rope|add_rms_norm|softmax|log_sigmoid_mul_sum|gelu|swiglu)-float16",
        r"is_the_rounded_truth\[(cross_entropy_sum|layer_norm|geglu)-bfloat16",
        r"lie_anyhow\[turned-(?!rms_norm|softmax)",
    ),
    "test_nn_catalogue_torch_gradients": (
        r"finite_differences\[cross_entropy_(sum|each)\]",
        r"rounded_once\[torch.bfloat16-(add_rms_norm|rope|piecewise)",
        r"strided_inputs_are_too\[(rope|piecewise|add_rms)",
        r"of_no_rows\[(rope-True|add_rms_norm|softmax|softmax-1|piecewise_linear)\]",
    ),
    "test_gallery": (r"fast\[dlpack", r"trains_a_classifier\[two_moons"),
    "codegen/numba/test_printer_of_random_graphs": (
        r"of_seeds\[502",
        r"of_seeds\[50[13-5]",
    ),
    "codegen/numba/test_spellings": (r"(the_table_says|to_every_dtype)\[(u16|u64|i64|f16)", r"to_the_bit\[u64"),
    "codegen/numpy/test_printer": (r"random_graphs\[100", r"of_a_llama\[torchscript"),
    "codegen/onnx/test_printer": (r"random_graphs\[by_the_reference",),
    "codegen/test_cmath": (r"without_a_warning\[gcc-4", r"promise\[gcc-v2-", r"minimax\[wide_log"),
    "codegen/test_identifiers": (r"results_are_the_same\[(c-1|numba-2)",),
    "compiler/schedules/cpu/test_blocked_folds": (
        r"around_the_block\[(65535|65536|65537)",
        r"near_the_truth\[(1.0-DType.F64|None|0.1)",
    ),
    "compiler/schedules/cpu/test_folds": (r"every_monoid_in_every_dtype\[.*-(f16|bf16|u16|u32|i16|i32)-",),
    "compiler/schedules/cpu/test_rows_in_lanes": (r"in_c\[(turned|the nearest|f64|named like memory)",),
    "compiler/schedules/gpu/test_rows_and_columns_grid_both": (r"graph_gives\[(1-7|9-4|1-1|10-13|11-5)-",),
    "compiler/partition/test_cut_of_adversaries": (r"with_boundaries\[[2-9]\d?\]",),
    "frontends/numpy/test_derived_ufuncs_composed": (r"of_any_rank\[.*-(2|np.float32\(2.5\)|np.int8\(3\))\]",),
    "frontends/torch/test_calculations": (
        r"of_one_tensor\[torch.bool",
        r"other_functions\[False",
        r"is_torchs\[(lt|div)",
        r"of_one_tensor\[torch.bfloat16",
    ),
    "frontends/torch/test_calculations_products": (r"products\[False",),
    "frontends/torch/test_pieces": (r"pieces\[False",),
    "frontends/torch/test_pieces_creation": (r"nothing\[False",),
    "frontends/torch/test_reductions": (r"softmax_and_norms\[torch.(float64)", r"(reductions|places)\[False"),
    "frontends/torch/test_views": (r"views\[False",),
    # The same path with another name, width, dtype of the same kind, layout or number.
    "jobs/optimize/test_command_bad_input": (
        r"hostile_names_are_only_names\['([-1_%]|\\\\xe9|a b|a\\\\nb|xxx)",
        r"of_operators_are_only_names\['([-1_%]|\\\\xe9|a b|a\\\\nb|xxx)",
        r"leaves_nothing\[(checking|compiling)",
        r"not_installed\[onnx-show",
    ),
    "jobs/profile/test_command": (r"hostile_names_are_only_names\['([-1_%]|\\\\xe9|a b|a\\\\nb|xxx)",),
    "jobs/show/test_model": (
        r"wider_than_the_terminal\[torchscript",
        r"wider_than_the_terminal\[.*(60|120)\]",
    ),
    "jobs/check/test_run_ops_kinds": (r"sum_in_lanes_is_right\[[24]",),
    "jobs/check/test_run_ops_ranks": (r"written_for_them\[for_tables-1",),
    "jobs/check/test_gradients_gradients": (r"are_right\[logsumexp-<lambda>1",),
    "compiler/schedules/cpu/test_strategy_choice": (r"kernel_computes\[.*\((16|64), False\)",),
    "hosts/torch/test_operator_registry": (
        r"torch_s_rules\[spread",
        r"torch_s_rules\[(softmax-given1|peak|scaled|layer)",
    ),
    "kernels/programs/test_generate_run": (r"numba_gives_the_same\[(inner|permuted)",),
    "nn/test_activations_softmaxes": (r"along_any_axis\[softmax",),
    "nn/test_norms": (r"under_the_root\[1e-06",),
    "ops/higher_order/test_ops_making": (r"any_rank_and_layout\[(expanded|packed|f64)", r"along_axes\[(max|squares)"),
    "ops/test_onnx_models": (r"reference_gives\[softmax of f(16|64)",),
    "ops/torch/test_autograd_forward_mode": (r"third_derivatives\[bent", r"reverse_mode_alone\[softmax"),
    "ops/torch/test_autograd_recording": (
        r"gradients_have_gradients\[rmsnorm",
        r"certificate_asks\[(rmsnorm-F16|softmax-BF16)",
    ),
    "ops/torch/test_graph_kernels_graphs": (r"certificate\[(cross_entropy-c|softmax-triton)",),
    "sanitizer/scripts/test_programs_of_openmp": (r"ends_its_program\[(15|9)\]",),
    "test_dtypes": (r"float8_an_op_does\[.*fnuz", r"quantised\[.*fnuz", r"float8_and_back\[.*fnuz"),
    "timing/test_comparison": (
        r"what_differs_is_told\[(0.9-Verdict.SLOWER|5.0-Verdict.FASTER)-bursts",
        r"is_the_same\[(drift|waves|two speeds)",
        r"is_told\[(1.06|0.9)-.*-(waves|two speeds|drift)",
    ),
    "verify/test_values": (
        r"right_kernels_are_accepted\[softmax-softmax_(by_reciprocal|in_double|backwards)",
        r"in_every_float\[(rms_norm|swiglu)-(f64|bf16)",
        r"in_every_float\[softmax-f16",
        r"right_kernels_are_accepted\[layer_norm-layer_norm_backwards",
        r"few_columns_is_accepted\[10",
    ),
    # Mutants, of which each language has another one, or defects of each kind, by default.
    "sanitizer/c/test_kernel_mutants": (r"correct.cu-80-3",),
    "sanitizer/numba_cuda/test_launch_mutants": (r"what_they_are\[3\]",),
    "sanitizer/triton/test_kernel_watching_mutants": (r"what_they_are\[10\]",),
    # What another test of the same path shows by default.
    "hosts/numpy/test_c_library_threads": (r"threads_of_its_own\[True",),
    "jobs/check/test_script_run_running": (r"goes_to_another_folder",),
    "sanitizer/numba/test_compiled": (r"same_is_found\[one cell", r"the_kernel_says\[<lambda>1"),
    "sanitizer/numba/test_kernel_watching": (r"returns_its_result\[1000",),
    "sanitizer/triton/test_kernel_watching": (r"process_of_its_own_sees_the_same",),
    "codegen/numba/test_intrinsics_math": (r"keep_their_promises\[f64",),
    "compiler/autodiff/test_reductions_torch": (r"computed_again\[torch.bfloat16",),
    "jobs/check/test_isolated_kernels": (r"strides_go_along\[loaded again",),
    "jobs/check/test_run_ops_defects": (r"for_something_else\[product-0.5",),
    "jobs/optimize/cuda/test_host": (r"as_torch_has_it\[dtype1",),
    "jobs/optimize/onnx/test_host_inputs": (r"judged_by_themselves\[all",),
    "jobs/optimize/onnx/test_tuning": (r"are_the_usual_ones\[None",),
    "jobs/optimize/torch/test_onnx_model": (r"onnxruntime_gives\[llama_tiny_dynamo",),
    "codegen/numba/test_printer_golden": (r"function_itself_computes_the_same\[full_sum",),
    "codegen/c/test_printer_c_sanitizers": (r"fault_is_reported\[.*(i1 - 1|division by zero)",),
    "jobs/optimize/onnx/test_run": (r"stay_right\[(any rank|strings|sequence in|float64|scalar)\]",),
    "jobs/optimize/onnx/test_kernel_timing": (r"timed_a_second_time\[ratios(1|3)-",),
    "jobs/optimize/onnx/test_user_kernels": (r"model_is_unharmed\[before the start",),
    "jobs/profile/test_run": (r"every_kind_are_profiled\[(scalar|float64|float16|empty|any rank|strings|overridable)",),
    "hosts/numpy/test_c_library_threads_shares": (r"whoever_comes\[1048576-0-(2|3|1000)-",),
    "workers/test_tamper_detection": (
        r"outputs_that_are_kept\[(cells here and there|the sum of a row|address)\]",
        r"outputs_are_tiny\[1e-12",
    ),
    "compiler/schedules/cpu/test_nontemporal_stores": (
        r"output_begins\[.*-16\]",
        r"side_of_the_size\[.*-4194304",
    ),
    "compiler/schedules/cpu/test_strategies_rows": (r"rows_in_lanes\[.*-16-streamed",),
}
