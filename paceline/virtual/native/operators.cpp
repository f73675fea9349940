// Which operators run by their CPU kernel: all that have one.

#include "operators.h"

#include <torch/library.h>

#include <map>
#include <memory>
#include <mutex>
#include <set>

#include "fallback.h"

namespace paceline {
namespace {

// The kernel of one operator: it carries that operator's plan.
class OnCpu final : public c10::OperatorKernel {
 public:
  explicit OnCpu(const c10::OperatorHandle& op) : plan_(op) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
    Correspondence known;
    run_on_cpu(plan_, op, stack, known);
  }

 private:
  Plan plan_;
};

// For operators that nobody knew of when the library was loaded: a program's own, or torchvision's.
void run_unplanned(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  static std::mutex mutex;
  static std::map<std::string, std::unique_ptr<Plan>> plans;
  Plan* plan = nullptr;
  {
    std::lock_guard<std::mutex> lock(mutex);
    auto& slot = plans[c10::toString(op.operator_name())];
    if (slot == nullptr) {
      slot = std::make_unique<Plan>(op);
    }
    plan = slot.get();
  }
  Correspondence known;
  run_on_cpu(*plan, op, stack, known);
}

void refuse_sparse(const c10::OperatorHandle& op, torch::jit::Stack*) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      false,
      "virtual devices hold dense tensors; ",
      op.operator_name(),
      " would work on a sparse one. Keep sparse tensors on the CPU.");
}

// These have no CPU kernel of their own: their common kernel asks where its arguments are, to choose
// among the kernels of the devices that PyTorch knows. They must be asked on the CPU.
const std::set<std::string>& chosen_by_device() {
  static const std::set<std::string> names{
      "aten::conj_physical_", "aten::convolution", "aten::convolution_backward", "aten::mode.values"};
  return names;
}

bool belongs_on_cpu(const c10::OperatorHandle& op) {
  return op.hasKernelForDispatchKey(c10::DispatchKey::CPU) ||
      chosen_by_device().count(c10::toString(op.operator_name())) != 0;
}

} // namespace

void register_cpu_operators() {
  // Leaked: dropping a library takes its kernels out of the dispatcher.
  static auto* library = new torch::Library(
      torch::Library::IMPL, "aten", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
  for (const auto& name : c10::Dispatcher::singleton().getAllOpNames()) {
    const auto op = c10::Dispatcher::singleton().findOp(name);
    const bool is_aten = op && op->hasSchema() && op->schema().getNamespace() == "aten";
    if (!is_aten || op->hasKernelForDispatchKey(c10::DispatchKey::PrivateUse1) || !belongs_on_cpu(*op)) {
      continue;
    }
    library->impl(
        c10::toString(name).c_str(),
        torch::CppFunction::makeFromBoxedFunctor(std::make_unique<OnCpu>(*op)));
  }
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&run_unplanned>());
}

TORCH_LIBRARY_IMPL(_, SparsePrivateUse1, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&refuse_sparse>());
}

TORCH_LIBRARY_IMPL(_, SparseCsrPrivateUse1, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&refuse_sparse>());
}

} // namespace paceline
