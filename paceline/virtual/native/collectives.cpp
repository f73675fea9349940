// torch.distributed on virtual tensors: the collective runs on the twins, over the CPU's backend
// (gloo), and the work object that it returns speaks of virtual tensors again.

#include <ATen/core/ivalue.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <torch/library.h>

#include <algorithm>
#include <memory>

#include "collectives.h"
#include "device.h"
#include "fallback.h"
#include "twin.h"

namespace paceline {
namespace {

using Future = c10::ivalue::Future;

std::vector<c10::Device> all_devices() {
  std::vector<c10::Device> devices;
  for (c10::DeviceIndex i = 0; i < device_count(); ++i) {
    devices.emplace_back(kVirtual, i);
  }
  return devices;
}

// Work on twins, seen from the virtual side.
class VirtualWork final : public c10d::Work {
 public:
  VirtualWork(c10::intrusive_ptr<c10d::Work> inner, Correspondence known)
      : Work(-1, inner->retrieveOpType()), inner_(std::move(inner)), known_(std::move(known)) {}

  bool isCompleted() override {
    return inner_->isCompleted();
  }
  bool isSuccess() const override {
    return inner_->isSuccess();
  }
  std::exception_ptr exception() const override {
    return inner_->exception();
  }
  int sourceRank() const override {
    return inner_->sourceRank();
  }
  void synchronize() override {
    inner_->synchronize();
  }
  bool wait(std::chrono::milliseconds timeout) override {
    return inner_->wait(timeout);
  }
  // Waiting on the host is stronger than blocking a stream, and always right.
  void blockCurrentStream() override {
    inner_->wait();
  }
  void abort() override {
    inner_->abort();
  }
  float getDuration() const override {
    return inner_->getDuration();
  }
  uint64_t getSequencenumber() const override {
    return inner_->getSequencenumber();
  }
  c10::intrusive_ptr<Future> getFutureResult() override {
    return inner_->getFutureResult();
  }

  std::vector<at::Tensor> result() override {
    auto tensors = inner_->result();
    for (auto& tensor : tensors) {
      tensor = virtual_of(tensor);
    }
    return tensors;
  }

  c10::intrusive_ptr<Future> getFuture() override {
    auto inner = inner_->getFuture();
    auto outer = c10::make_intrusive<Future>(inner->elementType(), all_devices());
    auto self = c10::intrusive_ptr<VirtualWork>::reclaim_copy(this);
    inner->addCallback([outer, self](Future& done) {
      if (done.hasError()) {
        outer->setError(done.exception_ptr());
      } else {
        outer->markCompleted(self->virtual_of(done.constValue()));
      }
    });
    return outer;
  }

 private:
  // Only tensors that came in as virtual ones are known; anything else stays as it is.
  at::Tensor virtual_of(const at::Tensor& tensor) {
    if (!tensor.defined() || !tensor.is_cpu()) {
      return tensor;
    }
    const auto* shell = known_.find(tensor.storage());
    return shell == nullptr ? tensor : to_virtual(tensor, shell->device().index(), known_);
  }

  c10::IValue virtual_of(const c10::IValue& value) {
    if (value.isTensor()) {
      return virtual_of(value.toTensor());
    }
    if (value.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const auto& tensor : value.toTensorVector()) {
        list.push_back(virtual_of(tensor));
      }
      return list;
    }
    return value;
  }

  c10::intrusive_ptr<c10d::Work> inner_;
  Correspondence known_;
};

bool serves(const c10d::ProcessGroup& group, c10::DeviceType type) {
  const auto devices = group.getDeviceTypes();
  return std::any_of(devices.begin(), devices.end(), [type](c10::Device d) { return d.type() == type; });
}

// A group made for the accelerator alone has no backend under "cpu", where the twins will look.
void lend_backend_to_cpu(const c10::IValue& argument) {
  auto group = argument.toCustomClass<c10d::ProcessGroup>();
  if (!serves(*group, c10::DeviceType::CPU) && serves(*group, kVirtual)) {
    group->setBackend(c10::DeviceType::CPU, group->getBackendType(), group->getBackend(kVirtual));
  }
}

class Collective final : public c10::OperatorKernel {
 public:
  explicit Collective(const c10::OperatorHandle& op) : plan_(op) {
    for (const auto& argument : op.schema().arguments()) {
      if (argument.name() == "process_group") {
        group_argument_ = position_;
      }
      ++position_;
    }
    const auto& results = op.schema().returns();
    returns_work_ = !results.empty() && results.back().type()->str().find("Work") != std::string::npos;
  }

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
    if (group_argument_ >= 0) {
      lend_backend_to_cpu((*stack)[stack->size() - position_ + group_argument_]);
    }
    Correspondence known;
    run_on_cpu(plan_, op, stack, known);
    if (returns_work_ && !stack->back().isNone()) {
      auto inner = stack->back().toCustomClass<c10d::Work>();
      c10::intrusive_ptr<c10d::Work> work = c10::make_intrusive<VirtualWork>(inner, std::move(known));
      stack->back() = c10::IValue(work);
    }
  }

 private:
  Plan plan_;
  int group_argument_ = -1;
  int position_ = 0;
  bool returns_work_ = false;
};

class Silence final : public c10::WarningHandler {
  void process(const c10::Warning&) override {}
};

} // namespace

void register_collectives() {
  // PyTorch itself registers its collectives for this device, expecting a backend that takes the
  // device's tensors. Gloo takes none but the CPU's, so these are replaced, which PyTorch announces.
  Silence silence;
  const c10::WarningUtils::WarningHandlerGuard no_announcement(&silence);
  // Leaked: dropping a library takes its kernels out of the dispatcher.
  static auto* library = new torch::Library(
      torch::Library::IMPL, "c10d", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
  for (const auto& name : c10::Dispatcher::singleton().getAllOpNames()) {
    const auto op = c10::Dispatcher::singleton().findOp(name);
    const bool is_collective = op && op->hasSchema() && op->schema().getNamespace() == "c10d" &&
        op->hasKernelForDispatchKey(c10::DispatchKey::CPU);
    if (is_collective) {
      library->impl(
          c10::toString(name).c_str(),
          torch::CppFunction::makeFromBoxedFunctor(std::make_unique<Collective>(*op)));
    }
  }
}

} // namespace paceline
