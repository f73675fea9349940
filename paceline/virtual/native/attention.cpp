// scaled_dot_product_attention asks each device type which of its kernels to use. A virtual device
// answers what the CPU answers, so that the same kernel runs.

#include <ATen/core/Tensor.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/ops/_fused_sdp_choice.h>

#include "twin.h"

namespace paceline {
namespace {

int64_t choose(
    const at::Tensor& query,
    const at::Tensor& key,
    const at::Tensor& value,
    const std::optional<at::Tensor>& mask,
    double dropout_p,
    bool is_causal,
    std::optional<double> scale,
    bool enable_gqa) {
  // The choice depends on whether a gradient is wanted, and a twin does not say that.
  const auto like = [](const at::Tensor& tensor) {
    return cpu_twin(tensor.detach()).requires_grad_(tensor.requires_grad());
  };
  const auto mask_twin = mask.has_value() && mask->defined() ? std::optional(like(*mask)) : std::nullopt;
  return at::_fused_sdp_choice(
      like(query), like(key), like(value), mask_twin, dropout_p, is_causal, scale, enable_gqa);
}

} // namespace
} // namespace paceline

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &paceline::choose)
} // namespace at::native
