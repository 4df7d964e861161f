// Interface `tenon.component.identities/1`: settings of a component under which a run ends as one with
// another component, or with other settings, in its place. `tenon fuzz`, `tenon conformance` and the tests of
// this tree train both and compare; a plugin brings its own.
//
//   class Lion final : public OptimizerBase, private IdentitiesOf<Lion> {
//    public:
//     static constexpr Identity kIdentities[] = {{.why = "...", .options = "...", .other = "type = ..."}};
//     void* query(std::string_view id) override {
//       return id == ComponentIdentities::kId ? static_cast<ComponentIdentities*>(this) : nullptr;
//     }
#pragma once

#include <tenon/abi.hpp>

#include <span>
#include <string_view>

TENON_ABI_BEGIN

/// Texts are lines of TOML and outlive the component. On both sides, options that a text leaves out have
/// their defaults; keys of the core in the table, such as [sync] buffers, stay.
struct Identity {
  std::string_view why;      ///< one sentence: "averaging after every slot is averaging of gradients"
  std::string_view options;  ///< of the component: "interval = 1"
  std::string_view other;    ///< the table in its place: "type = \"none\""
  /// Settings of the run that both sides have, by their keys at the top: "optimizer.type = \"sgd\"".
  std::string_view given = "";
  /// Largest difference of a weight over the largest weight of its tensor, or over a tenth of the model's
  /// largest where that is more; 0: equal bits. Recoveries have 0.
  double within = 0;
};

/// Offered through query(ComponentIdentities::kId) by components of any kind.
class ComponentIdentities {
 public:
  static constexpr const char* kId = "tenon.component.identities/1";
  virtual ~ComponentIdentities();
  /// The same for all objects of the component, valid as long as its plugin.
  virtual std::span<const Identity> identities() const = 0;
};

/// Base of a component with a constant kIdentities.
template <typename T>
class IdentitiesOf : public ComponentIdentities {
 public:
  std::span<const Identity> identities() const override { return T::kIdentities; }
};

TENON_ABI_END
