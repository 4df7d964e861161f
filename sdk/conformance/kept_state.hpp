// What a component visits in state(), kept in memory: saved from one object, loaded into another.
#pragma once

#include <tenon/error.hpp>
#include <tenon/state.hpp>

#include <cstring>
#include <map>
#include <string>
#include <vector>

namespace tenon::conformance {

class KeptState final : public StateVisitor {
 public:
  /// What follows is read from what was kept.
  void load() { loading_ = true; }
  bool loading() const override { return loading_; }
  void integer(std::string_view name, std::int64_t& value) override { plain(name, &value, sizeof value); }
  void real(std::string_view name, double& value) override { plain(name, &value, sizeof value); }
  void text(std::string_view name, std::string& value) override {
    std::string& kept = at(name);
    loading_ ? value = kept : kept = value;
  }
  void tensor(std::string_view name, TensorView value) override {
    plain(name, value.data, static_cast<std::size_t>(value.bytes()));
  }
  void enter(std::string_view name) override { path_.emplace_back(name); }
  void leave() override { path_.pop_back(); }

 private:
  std::string& at(std::string_view name) {
    std::string path;
    for (const std::string& part : path_) path += part + ".";
    path += name;
    if (loading_ == (kept_.count(path) == 0))
      fail_run("state(): '" + path + "' " + (loading_ ? "was never saved" : "is visited twice"));
    return kept_[path];
  }
  void plain(std::string_view name, void* data, std::size_t bytes) {
    std::string& kept = at(name);
    if (!loading_) {
      kept.assign(static_cast<const char*>(data), bytes);
    } else if (kept.size() != bytes) {
      fail_run("state(): '" + std::string(name) + "' has another size when it is loaded");
    } else if (bytes > 0) {
      std::memcpy(data, kept.data(), bytes);
    }
  }

  bool loading_ = false;
  std::vector<std::string> path_;
  std::map<std::string, std::string> kept_;
};

}  // namespace tenon::conformance
