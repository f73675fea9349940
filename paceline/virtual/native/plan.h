// An operator's schema, read once: what a call must know of it.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <vector>

namespace paceline {

// What an operator's schema says about one argument or result.
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
  bool is_index; // names places in another tensor
};

struct Result {
  Kind kind;
  int written_argument; // the argument with the same alias set, or -1
};

// What of the schema matters to a call, read once.
struct Plan {
  explicit Plan(const c10::OperatorHandle& op);
  std::vector<Argument> arguments;
  std::vector<Result> results;
};

} // namespace paceline
