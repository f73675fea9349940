// Every operator that has a CPU kernel, run by that kernel on the twins of its arguments.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <vector>

#include "twin.h"

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
  bool draws_unnamed; // draws random numbers without taking a generator
};

// Runs one call on the CPU: arguments are on the stack, results replace them.
// What is known about shared storages is left in `known`.
void run_on_cpu(
    const Plan& plan,
    const c10::OperatorHandle& op,
    torch::jit::Stack* stack,
    Correspondence& known);

// Takes over every aten operator that has a CPU kernel and no kernel of ours.
void register_cpu_operators();

} // namespace paceline
