#include "plan.h"

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

// A result in a written alias set is the argument of that set, not merely something like it.
int argument_returned_as(const c10::Argument& result, const std::vector<c10::Argument>& arguments) {
  const auto* returned = result.alias_info();
  if (returned == nullptr || !returned->isWrite()) {
    return -1;
  }
  for (size_t i = 0; i < arguments.size(); ++i) {
    const auto* taken = arguments[i].alias_info();
    if (taken != nullptr && taken->isWrite() && taken->beforeSets() == returned->beforeSets()) {
      return static_cast<int>(i);
    }
  }
  return -1;
}

bool is_index(const c10::Argument& argument, const std::string& operator_name) {
  const auto& name = argument.name();
  const bool is_class = name == "target" && operator_name.rfind("aten::nll_loss", 0) == 0;
  return name == "index" || name == "indices" || is_class;
}

} // namespace

Plan::Plan(const c10::OperatorHandle& op) {
  const auto& schema = op.schema();
  for (const auto& argument : schema.arguments()) {
    const auto kind = kind_of(*argument.type());
    const bool is_written = argument.alias_info() != nullptr && argument.alias_info()->isWrite();
    arguments.push_back({kind, is_written, is_index(argument, op.operator_name().name)});
  }
  for (const auto& result : schema.returns()) {
    results.push_back(argument_returned_as(result, schema.arguments()));
  }
}

} // namespace paceline
