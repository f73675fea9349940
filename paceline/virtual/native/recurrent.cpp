// LSTM and GRU cells. PyTorch's recurrent layers ask every accelerator for fused cells, and the
// CPU has none: these do, step by step, what the CPU's unfused cells do.

#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/sigmoid_backward.h>
#include <ATen/ops/tanh_backward.h>
#include <ATen/ops/zeros_like.h>
#include <torch/library.h>

#include <tuple>

namespace paceline {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

Tensor plus(const Tensor& gates, const OptionalTensor& bias) {
  return bias.has_value() && bias->defined() ? gates + *bias : gates;
}

Tensor bias_gradient(const Tensor& gates_gradient, bool has_bias) {
  return has_bias ? gates_gradient.sum(0) : Tensor();
}

Tensor or_zeros(const OptionalTensor& gradient, const Tensor& like) {
  return gradient.has_value() && gradient->defined() ? *gradient : at::zeros_like(like);
}

// The activated gates are the workspace that the backward pass receives.
std::tuple<Tensor, Tensor, Tensor> lstm_cell(
    const Tensor& input_gates,
    const Tensor& hidden_gates,
    const Tensor& cell,
    const OptionalTensor& input_bias,
    const OptionalTensor& hidden_bias) {
  auto gates = plus(hidden_gates, hidden_bias) + plus(input_gates, input_bias);
  auto chunks = gates.unsafe_chunk(4, 1);
  auto in = chunks[0].sigmoid_();
  auto forget = chunks[1].sigmoid_();
  auto candidate = chunks[2].tanh_();
  auto out = chunks[3].sigmoid_();
  auto next_cell = (forget * cell).add_(in * candidate);
  auto hidden = out * next_cell.tanh();
  return {hidden, next_cell, gates};
}

std::tuple<Tensor, Tensor, Tensor> lstm_cell_backward(
    const OptionalTensor& hidden_gradient,
    const OptionalTensor& cell_gradient,
    const Tensor& cell,
    const Tensor& next_cell,
    const Tensor& workspace,
    bool has_bias) {
  auto chunks = workspace.unsafe_chunk(4, 1);
  const auto& in = chunks[0];
  const auto& forget = chunks[1];
  const auto& candidate = chunks[2];
  const auto& out = chunks[3];
  const auto d_hidden = or_zeros(hidden_gradient, next_cell);
  const auto activated = next_cell.tanh();
  const auto d_cell = or_zeros(cell_gradient, next_cell) + at::tanh_backward(d_hidden * out, activated);
  auto d_gates = at::cat(
      {at::sigmoid_backward(d_cell * candidate, in),
       at::sigmoid_backward(d_cell * cell, forget),
       at::tanh_backward(d_cell * in, candidate),
       at::sigmoid_backward(d_hidden * activated, out)},
      1);
  return {d_gates, d_cell * forget, bias_gradient(d_gates, has_bias)};
}

// The workspace holds, side by side: reset, update, new, the hidden state, and the new gate's
// hidden part before the reset gate multiplies it.
std::tuple<Tensor, Tensor> gru_cell(
    const Tensor& input_gates,
    const Tensor& hidden_gates,
    const Tensor& hidden,
    const OptionalTensor& input_bias,
    const OptionalTensor& hidden_bias) {
  auto from_input = plus(input_gates, input_bias).unsafe_chunk(3, 1);
  auto from_hidden = plus(hidden_gates, hidden_bias).unsafe_chunk(3, 1);
  auto reset = (from_hidden[0] + from_input[0]).sigmoid_();
  auto update = (from_hidden[1] + from_input[1]).sigmoid_();
  auto fresh = from_input[2].add(from_hidden[2].mul(reset)).tanh_();
  auto next = (hidden - fresh).mul_(update).add_(fresh);
  return {next, at::cat({reset, update, fresh, hidden, from_hidden[2]}, 1)};
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> gru_cell_backward(
    const Tensor& gradient,
    const Tensor& workspace,
    bool has_bias) {
  auto chunks = workspace.unsafe_chunk(5, 1);
  const auto& reset = chunks[0];
  const auto& update = chunks[1];
  const auto& fresh = chunks[2];
  const auto& hidden = chunks[3];
  const auto& from_hidden = chunks[4];
  const auto d_fresh = at::tanh_backward(gradient * (1 - update), fresh);
  const auto d_reset = at::sigmoid_backward(d_fresh * from_hidden, reset);
  const auto d_update = at::sigmoid_backward(gradient * (hidden - fresh), update);
  auto d_input_gates = at::cat({d_reset, d_update, d_fresh}, 1);
  auto d_hidden_gates = at::cat({d_reset, d_update, d_fresh * reset}, 1);
  return {
      d_input_gates,
      d_hidden_gates,
      gradient * update,
      bias_gradient(d_input_gates, has_bias),
      bias_gradient(d_hidden_gates, has_bias)};
}

} // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("_thnn_fused_lstm_cell", lstm_cell);
  library.impl("_thnn_fused_lstm_cell_backward_impl", lstm_cell_backward);
  library.impl("_thnn_fused_gru_cell", gru_cell);
  library.impl("_thnn_fused_gru_cell_backward", gru_cell_backward);
}

} // namespace paceline
