// Copies: within a device, between devices, and between a device and the host.

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_local_scalar_dense.h>
#include <torch/library.h>

#include "device.h"
#include "fork.h"
#include "ledger.h"
#include "storage.h"
#include "timeline.h"
#include "twin.h"

namespace paceline {
namespace {

int endpoint_of(const at::Tensor& tensor) {
  return is_virtual(tensor) ? tensor.device().index() : kHost;
}

void check_endpoint(const at::Tensor& tensor) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      tensor.is_cpu() || is_virtual(tensor),
      "a virtual device can copy from and to the CPU and other virtual devices, not ",
      tensor.device(),
      tensor.is_meta() ? ": a meta tensor has no data" : "");
}

// Where CUDA converts in a copy that also converts: on the host if it waits, which saves memory of the
// GPU, else on the GPU; between GPUs on the source.
bool converts_at_source(const at::Tensor& to, const at::Tensor& from, bool non_blocking) {
  if (endpoint_of(from) == kHost) {
    return !non_blocking;
  }
  return endpoint_of(to) != kHost || non_blocking;
}

int64_t bytes_across(const at::Tensor& to, const at::Tensor& from, bool non_blocking) {
  const auto& crossing = converts_at_source(to, from, non_blocking) ? to : from;
  return to.numel() * static_cast<int64_t>(crossing.element_size());
}

// The host waits for a copy in which it takes part, unless it was promised otherwise and
// page-locked memory would keep that promise on a GPU machine.
bool host_waits(const at::Tensor& to, const at::Tensor& from, bool non_blocking) {
  const at::Tensor* host_side = endpoint_of(to) == kHost ? &to : endpoint_of(from) == kHost ? &from : nullptr;
  return host_side != nullptr && !(non_blocking && is_pinned(host_side->storage().data()));
}

void copy_bytes(const at::Tensor& to, const at::Tensor& from) {
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  auto twin = cpu_twin(to);
  twin.copy_(cpu_twin(from));
}

void copy_within(const at::Tensor& to, const at::Tensor& from) {
  wait_for_stream(to.device().index());
  copy_bytes(to, from);
}

void copy_across(const at::Tensor& to, const at::Tensor& from, bool non_blocking) {
  const Moment ready = now();
  copy_bytes(to, from);
  if (to.numel() == 0) {
    return;
  }
  const int64_t bytes = bytes_across(to, from, non_blocking);
  const Moment done = account_for_copy(endpoint_of(from), endpoint_of(to), bytes, ready);
  if (host_waits(to, from, non_blocking)) {
    wait_until(done);
  }
}

at::Tensor& copy_(at::Tensor& self, const at::Tensor& source, bool non_blocking) {
  check_process();
  check_endpoint(self);
  check_endpoint(source);
  if (self.is_same(source)) {
    return self;
  }
  if (self.device() == source.device()) {
    copy_within(self, source);
  } else {
    copy_across(self, source, non_blocking);
  }
  return self;
}

at::Tensor copy_from(const at::Tensor& source, const at::Tensor& self, bool non_blocking) {
  at::Tensor destination = self;
  return copy_(destination, source, non_blocking);
}

at::Tensor copy_from_and_resize(const at::Tensor& source, const at::Tensor& self) {
  self.resize_(source.sizes());
  return copy_from(source, self, false);
}

// Reading one number, as item() does, is a copy for which the host waits.
at::Scalar local_scalar_dense(const at::Tensor& self) {
  check_process();
  const auto bytes = static_cast<int64_t>(self.element_size());
  wait_until(account_for_copy(endpoint_of(self), kHost, bytes, now()));
  return at::_local_scalar_dense(cpu_twin(self));
}

} // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("copy_", copy_);
  library.impl("_copy_from", copy_from);
  library.impl("_copy_from_and_resize", copy_from_and_resize);
  library.impl("_local_scalar_dense", local_scalar_dense);
}

} // namespace paceline
