// An operator's schema, read once: what a call must know of it.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <vector>

namespace paceline {

// What an operator's schema says about one argument.
enum class Kind : uint8_t {
  Other,
  Tensor,
  TensorList,
  OptionalTensorList,
  ListOfTensorLists,
  Device,
  Generator,
};

struct Argument {
  Kind kind;
  bool is_written; // Tensor(a!)
  bool admits_number; // takes a zero-dimensional CPU tensor, wherever the others are
};

// What of the schema matters to a call, read once.
struct Plan {
  explicit Plan(const c10::OperatorHandle& op);
  std::vector<Argument> arguments;
  std::vector<int> results; // the argument with the same alias set as the result, or -1
};

} // namespace paceline
