#include "plan.h"

#include <string>
#include <unordered_set>

namespace paceline {
namespace {

Kind kind_of_list(const c10::Type& element) {
  if (element.kind() == c10::TypeKind::TensorType) {
    return Kind::TensorList;
  }
  if (const auto* optional = element.castRaw<c10::OptionalType>()) {
    const bool of_tensors = optional->getElementType()->kind() == c10::TypeKind::TensorType;
    return of_tensors ? Kind::OptionalTensorList : Kind::Other;
  }
  if (const auto* list = element.castRaw<c10::ListType>()) {
    const bool of_tensors = list->getElementType()->kind() == c10::TypeKind::TensorType;
    return of_tensors ? Kind::ListOfTensorLists : Kind::Other;
  }
  return Kind::Other;
}

Kind kind_of(const c10::Type& type) {
  switch (type.kind()) {
    case c10::TypeKind::TensorType:
      return Kind::Tensor;
    case c10::TypeKind::DeviceObjType:
      return Kind::Device;
    case c10::TypeKind::GeneratorType:
      return Kind::Generator;
    case c10::TypeKind::OptionalType:
      return kind_of(*type.castRaw<c10::OptionalType>()->getElementType());
    case c10::TypeKind::ListType:
      return kind_of_list(*type.castRaw<c10::ListType>()->getElementType());
    default:
      return Kind::Other;
  }
}

bool is_written(const c10::Argument& argument) {
  return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
}

// A result in a written alias set is the argument of that set, not merely something like it.
int argument_returned_as(const c10::Argument& result, const std::vector<c10::Argument>& arguments) {
  if (!is_written(result)) {
    return -1;
  }
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (is_written(arguments[i]) &&
        arguments[i].alias_info()->beforeSets() == result.alias_info()->beforeSets()) {
      return static_cast<int>(i);
    }
  }
  return -1;
}

// CUDA's operators want all arguments on one device, before their kernels are asked, unless PyTorch
// declares that their kernels look for themselves.
bool checks_devices(const c10::OperatorHandle& op) {
  static const std::unordered_set<std::string> unchecked{
#include "unchecked_operators.inc" // written by build.py, from PyTorch's declarations
  };
  const auto name = c10::toString(op.operator_name());
  return op.operator_name().getNamespace() == "aten" && unchecked.count(name) == 0;
}

bool is_index(const c10::Argument& argument) {
  return argument.name() == "index" || argument.name() == "indices";
}

// A CPU tensor without dimensions is a number, and numbers mix with every device; an index is none. CUDA
// does not check arguments that are given by name alone.
bool admits_number(const c10::Argument& argument, bool operator_checks) {
  const bool is_checked = operator_checks && !argument.kwarg_only();
  return !is_checked && !is_written(argument) && !is_index(argument);
}

} // namespace

Plan::Plan(const c10::OperatorHandle& op) {
  const auto& schema = op.schema();
  const bool operator_checks = checks_devices(op);
  for (const auto& argument : schema.arguments()) {
    const auto kind = kind_of(*argument.type());
    arguments.push_back({kind, is_written(argument), admits_number(argument, operator_checks)});
  }
  for (const auto& result : schema.returns()) {
    results.push_back(argument_returned_as(result, schema.arguments()));
  }
}

} // namespace paceline
