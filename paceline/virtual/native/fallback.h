// One call of an operator, run by its CPU kernel on the twins of its arguments.
#pragma once

#include <ATen/core/stack.h>

#include "plan.h"
#include "twin.h"

namespace paceline {

// Arguments are on the stack, results replace them. What is known about shared storages is left in
// `known`.
void run_on_cpu(
    const Plan& plan,
    const c10::OperatorHandle& op,
    torch::jit::Stack* stack,
    Correspondence& known);

} // namespace paceline
