#include "fallback.h"

#include <ATen/core/LegacyTypeDispatch.h>

#include "device.h"
#include "fork.h"
#include "generator.h"
#include "ledger.h"
#include "timeline.h"

namespace paceline {
namespace {

// One call: the device it runs on, its arguments as they came, and the twins that replaced them.
class Call {
 public:
  Call(const Plan& plan, const c10::OperatorHandle& op, torch::jit::Stack* stack, Correspondence& known)
      : plan_(plan), op_(op), stack_(stack), known_(known) {}

  void run() {
    check_process();
    find_device();
    replace_arguments();
    wait_for_stream(device_);
    run_kernel();
    follow_written();
    replace_results();
  }

 private:
  c10::IValue& argument(size_t i) {
    return (*stack_)[stack_->size() - plan_.arguments.size() + i];
  }

  // ---- which device -----------------------------------------------------------------------

  void find_device() {
    for (size_t i = 0; i < plan_.arguments.size(); ++i) {
      visit_device(i);
    }
    if (device_ < 0) {
      device_ = current_device();
    }
    for (size_t i = 0; i < plan_.arguments.size(); ++i) {
      check_same_device(i);
    }
  }

  void visit_device(size_t i) {
    const auto& value = argument(i);
    switch (plan_.arguments[i].kind) {
      case Kind::Tensor:
        if (value.isTensor()) {
          propose_device(value.toTensor());
        }
        break;
      case Kind::TensorList:
      case Kind::OptionalTensorList:
      case Kind::ListOfTensorLists:
        for_each_tensor(value, [this](const at::Tensor& tensor) { propose_device(tensor); });
        break;
      case Kind::Device:
        if (value.isDevice() && value.toDevice().type() == kVirtual && device_ < 0) {
          device_ = resolve_index(value.toDevice());
        }
        break;
      default:
        break;
    }
  }

  void propose_device(const at::Tensor& tensor) {
    if (device_ < 0 && is_virtual(tensor)) {
      device_ = tensor.device().index();
    }
  }

  void check_same_device(size_t i) {
    const auto& value = argument(i);
    switch (plan_.arguments[i].kind) {
      case Kind::Tensor:
        if (value.isTensor()) {
          check_tensor(value.toTensor(), i);
        }
        break;
      case Kind::TensorList:
      case Kind::ListOfTensorLists:
        for_each_tensor(value, [&](const at::Tensor& tensor) { check_tensor(tensor, i); });
        break;
      case Kind::OptionalTensorList:
        for_each_tensor(value, [&](const at::Tensor& tensor) { admit_index(tensor, i); });
        break;
      default:
        break;
    }
  }

  void check_tensor(const at::Tensor& tensor, size_t i) {
    if (!tensor.defined() || tensor.device() == c10::Device(kVirtual, device_)) {
      return;
    }
    const bool is_number = tensor.is_cpu() && tensor.dim() == 0;
    if (!is_number || !plan_.arguments[i].admits_number) {
      refuse(tensor, i);
    }
  }

  // Indexing takes its indices from the CPU too; the copy that this means is counted.
  void admit_index(const at::Tensor& tensor, size_t i) {
    if (!tensor.defined() || tensor.device() == c10::Device(kVirtual, device_)) {
      return;
    }
    if (!tensor.is_cpu()) {
      refuse(tensor, i);
    }
    wait_until(account_for_copy(kHost, device_, static_cast<int64_t>(tensor.nbytes()), now()));
  }

  [[noreturn]] void refuse(const at::Tensor& tensor, size_t i) {
    TORCH_CHECK(
        false,
        "Expected all tensors to be on the same device, but found at least two devices, virtual:",
        static_cast<int>(device_),
        " and ",
        tensor.device(),
        "! (when checking argument for argument ",
        op_.schema().arguments()[i].name(),
        " in method ",
        op_.operator_name(),
        ")");
    std::abort(); // the check above always throws, but the compiler cannot know
  }

  template <typename Function>
  static void for_each_tensor(const c10::IValue& value, const Function& function) {
    if (value.isTensor()) {
      function(value.toTensor());
    } else if (value.isList()) {
      for (const auto& element : value.toListRef()) {
        for_each_tensor(element, function);
      }
    }
  }

  // ---- to the CPU -------------------------------------------------------------------------

  void replace_arguments() {
    originals_.resize(plan_.arguments.size());
    for (size_t i = 0; i < plan_.arguments.size(); ++i) {
      replace_argument(i);
    }
  }

  void replace_argument(size_t i) {
    auto& value = argument(i);
    const auto kind = plan_.arguments[i].kind;
    const bool is_written = plan_.arguments[i].is_written;
    if (is_written) {
      originals_[i] = value;
    }
    if (kind == Kind::Generator) {
      value = c10::IValue(cpu_generator(value.isNone() ? default_generator(device_) : value.toGenerator()));
    } else if (kind == Kind::Device && value.isDevice()) {
      value = c10::IValue(c10::Device(c10::DeviceType::CPU));
    } else if (!value.isNone()) {
      replace_tensors(value, kind, is_written);
    }
  }

  void replace_tensors(c10::IValue& value, Kind kind, bool is_written) {
    switch (kind) {
      case Kind::Tensor:
        value = c10::IValue(take_twin(value.toTensor(), is_written));
        break;
      case Kind::TensorList:
        value = c10::IValue(twins_of(value.toTensorVector(), is_written));
        break;
      case Kind::OptionalTensorList:
        value = c10::IValue(twins_of(value.toOptionalTensorVector()));
        break;
      case Kind::ListOfTensorLists:
        value = c10::IValue(twins_of_lists(value, is_written));
        break;
      default:
        break;
    }
  }

  at::Tensor take_twin(const at::Tensor& original, bool is_written) {
    if (!is_virtual(original)) {
      return original;
    }
    auto twin = cpu_twin(original);
    known_.add_tensor(twin, original);
    if (is_written) {
      written_.emplace_back(original, twin);
    }
    return twin;
  }

  c10::List<at::Tensor> twins_of(const std::vector<at::Tensor>& originals, bool is_written) {
    c10::List<at::Tensor> twins;
    twins.reserve(originals.size());
    for (const auto& original : originals) {
      twins.push_back(take_twin(original, is_written));
    }
    return twins;
  }

  c10::List<c10::List<at::Tensor>> twins_of_lists(const c10::IValue& originals, bool is_written) {
    c10::List<c10::List<at::Tensor>> twins;
    for (const auto& list : originals.toListRef()) {
      twins.push_back(twins_of(list.toTensorVector(), is_written));
    }
    return twins;
  }

  c10::List<std::optional<at::Tensor>> twins_of(const std::vector<std::optional<at::Tensor>>& originals) {
    c10::List<std::optional<at::Tensor>> twins;
    for (const auto& original : originals) {
      if (original.has_value()) {
        twins.push_back(take_twin(*original, false));
      } else {
        twins.push_back(std::nullopt);
      }
    }
    return twins;
  }

  // ---- the kernel -------------------------------------------------------------------------

  void run_kernel() {
    // Autograd and autocast have had their turn with the virtual tensors.
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    op_.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack_);
  }

  // ---- and back ---------------------------------------------------------------------------

  // All of them even if the device refuses the growth of one: a twin left behind has other memory.
  void follow_written() {
    std::exception_ptr refusal;
    for (const auto& [original, twin] : written_) {
      try {
        follow_twin(original, twin, known_);
      } catch (...) {
        refusal = std::current_exception();
      }
    }
    if (refusal) {
      std::rethrow_exception(refusal);
    }
  }

  void replace_results() {
    const size_t first = stack_->size() - plan_.results.size();
    for (size_t i = 0; i < plan_.results.size(); ++i) {
      auto& value = (*stack_)[first + i];
      const int written = plan_.results[i];
      value = written >= 0 ? originals_[written] : to_virtual_value(value);
    }
  }

  c10::IValue to_virtual_value(const c10::IValue& value) {
    if (value.isTensor()) {
      return to_virtual(value.toTensor(), device_, known_);
    }
    if (value.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const auto& tensor : value.toTensorVector()) {
        list.push_back(to_virtual(tensor, device_, known_));
      }
      return list;
    }
    if (value.isList() && !value.toListRef().empty() && value.toListRef()[0].isTensorList()) {
      c10::List<c10::List<at::Tensor>> lists;
      for (const auto& element : value.toListRef()) {
        lists.push_back(to_virtual_value(element).toTensorList());
      }
      return lists;
    }
    return value;
  }

  const Plan& plan_;
  const c10::OperatorHandle& op_;
  torch::jit::Stack* stack_;
  Correspondence& known_;
  c10::DeviceIndex device_ = -1;
  c10::SmallVector<c10::IValue, 8> originals_; // of the written arguments
  c10::SmallVector<std::pair<at::Tensor, at::Tensor>, 4> written_; // original and twin
};

} // namespace

void run_on_cpu(
    const Plan& plan,
    const c10::OperatorHandle& op,
    torch::jit::Stack* stack,
    Correspondence& known) {
  Call(plan, op, stack, known).run();
}

} // namespace paceline
