// StateVisitor in its two forms: collecting what components keep, and giving it back.
#pragma once

#include <tenon/state.hpp>

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace tenon::train {

/// Walks components in save mode. Scalars become exact texts, tensors stay views.
class StateCollector final : public StateVisitor {
 public:
  bool loading() const override { return false; }
  void integer(std::string_view name, std::int64_t& value) override;
  void real(std::string_view name, double& value) override;
  void text(std::string_view name, std::string& value) override;
  void tensor(std::string_view name, TensorView value) override;
  void enter(std::string_view name) override { prefix_.emplace_back(name); }
  void leave() override { prefix_.pop_back(); }

  std::vector<std::pair<std::string, std::string>> scalars;
  std::vector<std::pair<std::string, TensorView>> tensors;

 private:
  std::string path(std::string_view name) const;
  void add(std::string_view name, std::string text);
  std::vector<std::string> prefix_;
};

/// Where saved tensors come from.
class StateSource {
 public:
  virtual ~StateSource();
  /// Null when absent.
  virtual const std::string* scalar(const std::string& name) = 0;
  /// Fills `out`; throws Error(kRun) when absent or of another type or shape.
  virtual void tensor(const std::string& name, TensorView out) = 0;
};

/// Walks components in load mode. A missing entry is an error that names it.
class StateRestorer final : public StateVisitor {
 public:
  explicit StateRestorer(StateSource& source) : source_(source) {}
  bool loading() const override { return true; }
  void integer(std::string_view name, std::int64_t& value) override;
  void real(std::string_view name, double& value) override;
  void text(std::string_view name, std::string& value) override;
  void tensor(std::string_view name, TensorView value) override;
  void enter(std::string_view name) override { prefix_.emplace_back(name); }
  void leave() override { prefix_.pop_back(); }

 private:
  std::string path(std::string_view name) const;
  const std::string& find(std::string_view name);
  StateSource& source_;
  std::vector<std::string> prefix_;
};

}  // namespace tenon::train
