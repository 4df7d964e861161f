// State of one component in memory: it is visited to save and, after load(), restored into another object.
// Tensors may be on the given device.
#pragma once

#include "subject.hpp"

#include <tenon/device.hpp>
#include <tenon/state.hpp>
#include <tenon/tensor.hpp>

#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::conformance {

class MemoryState final : public StateVisitor {
 public:
  explicit MemoryState(Device& device) : device_(&device) {}
  /// From now on values are restored.
  void load() { loading_ = true; }
  bool loading() const override { return loading_; }
  void integer(std::string_view name, std::int64_t& value) override { plain(name, value); }
  void real(std::string_view name, double& value) override { plain(name, value); }
  void text(std::string_view name, std::string& value) override {
    std::string& kept = slot(name);
    loading_ ? value = kept : kept = value;
  }
  void tensor(std::string_view name, TensorView value) override {
    std::string& kept = slot(name);
    const std::size_t bytes = value.bytes();
    if (!loading_) kept.resize(bytes);
    const TensorView mine{kept.data(), value.shape, value.dtype, MemorySpace::kHost};
    if (kept.size() == bytes) {
      if (bytes > 0) loading_ ? device_->copy(mine, value) : device_->copy(value, mine);
    } else {
      fail("state(): tensor '" + path_ + std::string(name) + "' has another size when it is loaded");
    }
  }
  void enter(std::string_view name) override { path_ += std::string(name) + "/"; }
  void leave() override { path_.erase(path_.find_last_of('/', path_.size() - 2) + 1); }

  bool operator==(const MemoryState& other) const { return values_ == other.values_; }

 private:
  template <typename T>
  void plain(std::string_view name, T& value) {
    std::string& kept = slot(name);
    if (loading_) {
      std::memcpy(&value, kept.data(), sizeof(T));
    } else {
      kept.assign(reinterpret_cast<const char*>(&value), sizeof(T));
    }
  }
  std::string& slot(std::string_view name) {
    const std::string full = path_ + std::string(name);
    const bool known = values_.count(full) > 0;
    if (loading_ && !known) fail("state() asks for '" + full + "', which it did not save");
    if (!loading_ && known) fail("state() visits '" + full + "' twice: names are unique");
    return values_[full];
  }

  Device* device_;
  bool loading_ = false;
  std::string path_;
  std::map<std::string, std::string> values_;
};

}  // namespace tenon::conformance
