// A kind of component that exercises everything that may pass between program and plugin: strings and vectors
// that one side creates and the other frees, exceptions by type, views, virtual calls in both directions.
#pragma once

#include <tenon/dataset.hpp>
#include <tenon/model.hpp>
#include <tenon/plugin.hpp>
#include <tenon/state.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace crossing {

enum class Throw { kConfigError, kDeadline, kOutOfRange, kOwnType, kNumber };

/// Not known to the core; defined in a header that both sides include.
struct OwnException : std::runtime_error {
  explicit OwnException(int value) : std::runtime_error("own exception"), code(value) {}
  int code;
};

class Crossing {
 public:
  using Interface = Crossing;
  static constexpr const char* kKind = "crossing/1";
  virtual ~Crossing() = default;
  virtual std::string describe(const std::vector<std::string>& words) const = 0;
  virtual tenon::GraphSpec build(const tenon::DataInfo& data) = 0;
  virtual void fail(Throw what) = 0;
  virtual void fill(tenon::TensorView view) = 0;
  virtual void state(tenon::StateVisitor& visitor) = 0;
  virtual void* query(std::string_view interface_id) = 0;
};

/// The extension "crossing.count/1".
class Count {
 public:
  virtual ~Count() = default;
  virtual std::int64_t count() const = 0;
};

}  // namespace crossing
