// Autocast: which operators run in the lower precision, in float32, or in the widest type of their
// arguments. The lists are PyTorch's own, the ones that CUDA uses.

#include <ATen/autocast_mode.h>
#include <torch/library.h>

namespace paceline {
namespace {

using at::Tensor;

Tensor refuse_binary_cross_entropy(
    const Tensor&,
    const Tensor&,
    const std::optional<Tensor>&,
    int64_t) {
  TORCH_CHECK(
      false,
      "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast.\n"
      "Use torch.nn.functional.binary_cross_entropy_with_logits or torch.nn.BCEWithLogitsLoss, "
      "which are safe to autocast.");
}

} // namespace
} // namespace paceline

namespace at::autocast {

TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, library) {
  library.fallback(torch::CppFunction::makeFallthrough());
}

TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {
#define LOWER_PRECISION(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, lower_precision_fp)
  AT_FORALL_LOWER_PRECISION_FP(LOWER_PRECISION)
#undef LOWER_PRECISION
#define SINGLE_PRECISION(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32)
  AT_FORALL_FP32(SINGLE_PRECISION)
#undef SINGLE_PRECISION
#define SINGLE_PRECISION_UNLESS_ASKED(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32_set_opt_dtype)
  AT_FORALL_FP32_SET_OPT_DTYPE(SINGLE_PRECISION_UNLESS_ASKED)
#undef SINGLE_PRECISION_UNLESS_ASKED
  // This list carries the whole registration of each operator, so it takes the macro itself.
  AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE(KERNEL_DIFFERENT_REDISPATCH_SIGNATURE_PRIVATEUSEONE)
#define WIDEST_TYPE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, promote)
  AT_FORALL_PROMOTE(WIDEST_TYPE)
#undef WIDEST_TYPE
  m.impl("binary_cross_entropy", paceline::refuse_binary_cross_entropy);
}

} // namespace at::autocast
