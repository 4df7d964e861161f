// One description of a component's state serves saving, loading and hashing, so that the three cannot
// disagree.
#pragma once

#include <tenon/tensor.hpp>

#include <cstdint>
#include <string>
#include <string_view>

TENON_ABI_BEGIN

/// Handed to `state(StateVisitor&)`. When saving it reads the given variables, when loading it overwrites
/// them. Names are unique within the component. A missing or differently shaped entry on load throws
/// Error(kRun).
class StateVisitor {
 public:
  virtual ~StateVisitor();
  virtual bool loading() const = 0;
  virtual void integer(std::string_view name, std::int64_t& value) = 0;
  virtual void real(std::string_view name, double& value) = 0;
  virtual void text(std::string_view name, std::string& value) = 0;
  /// Host memory; shape and dtype must be the same at save and load.
  virtual void tensor(std::string_view name, TensorView value) = 0;
  /// Inner components: everything visited by `inner` is prefixed with `name`.
  virtual void enter(std::string_view name) = 0;
  virtual void leave() = 0;
};

TENON_ABI_END
