// A kind of component that only these tests know: a new kind needs no change in the core.
#pragma once

#include <tenon/plugin.hpp>

#include <cstdint>
#include <string_view>

namespace toy {

class Toy {
 public:
  using Interface = Toy;
  static constexpr const char* kKind = "toy/1";
  virtual ~Toy() = default;
  virtual std::int64_t value() = 0;
  virtual void* query(std::string_view interface_id) = 0;
};

/// The smallest component; fixtures derive from it to misbehave.
class Plain : public Toy {
 public:
  explicit Plain(const tenon::Options&) {}
  std::int64_t value() override { return 7; }
  void* query(std::string_view) override { return nullptr; }
};

}  // namespace toy
