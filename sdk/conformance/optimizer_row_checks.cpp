// Checks of contract optimizer/1 for row tables (RowOptimizer).
#include "trainee.hpp"

#include <tenon/executor.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <string>

namespace tenon::conformance {
namespace {

constexpr std::int64_t kRows = 9, kWidth = 4;

/// A table under the optimizer, with the state of its rows.
class TableTrainee {
 public:
  /// `users`: nodes that read the table.
  explicit TableTrainee(Subject& subject, int users = 1)
      : device_(subject.device()), rule_(subject.make<Optimizer>()), users_(users) {
    rows_ = static_cast<RowOptimizer*>(rule_->query(RowOptimizer::kId));
    if (rows_ == nullptr) not_applicable("the rule does not update row tables");
    add_table("w", kWidth);
    for (const RowStateSlot& slot : rows_->row_slots())
      add_table(slot.name, slot.width == 0 ? kWidth : slot.width);
    bind();
    set_ = make_parameter_set("tables", parameters_, device_, SetContents::kEverything);
    for (std::size_t i = 1; i < parameters_.size(); ++i) states_.push_back(set_->table(static_cast<int>(i)));
    std::vector<double> start = drawn(subject, kRows * kWidth, "rows");
    write(0, start);
  }

  double lr() const { return rule_->base_lr(); }
  void step(const std::vector<std::int64_t>& ids, const std::vector<double>& values, std::int64_t count,
            double gradient_scale) {
    step(ids, values, std::vector<std::uint32_t>(ids.size(), 1), count, gradient_scale);
  }
  /// `reads`: how many of the nodes' reads added to each row's gradient.
  void step(const std::vector<std::int64_t>& ids, const std::vector<double>& values,
            const std::vector<std::uint32_t>& reads, std::int64_t count, double gradient_scale) {
    std::vector<float> memory(values.begin(), values.end());
    RowGradient gradient;
    gradient.ids = ids;
    gradient.values = {memory.data(), {static_cast<std::int64_t>(ids.size()), kWidth}, DType::kF32};
    gradient.counts = reads;
    rows_->step_rows({.lr = lr(), .count = count, .gradient_scale = gradient_scale, .device = &device_},
                     *set_->table(0), states_, gradient);
    device_.synchronize();
  }
  /// Returns a row of the weights and of every state.
  std::vector<double> row(std::int64_t id) const {
    std::vector<double> all;
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      const RowTable& table = *set_->table(static_cast<int>(i));
      std::vector<float> values(table.width());
      table.read({&id, 1}, {values.data(), {1, table.width()}, DType::kF32});
      all.insert(all.end(), values.begin(), values.end());
    }
    return all;
  }
  std::vector<double> weights(std::int64_t id) const {
    std::vector<double> all = row(id);
    all.resize(kWidth);
    return all;
  }

 private:
  void bind() {
    auto* const binding = static_cast<OptimizerBinding*>(rule_->query(OptimizerBinding::kId));
    if (binding == nullptr) return;
    try {
      binding->bind({std::span(parameters_).first(1), {&first_holder_, 1}, nullptr, &device_});
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kConfig) throw;
      not_applicable(fmt::format("with these options it updates no row tables: {}", error.what()));
    }
  }
  void add_table(std::string name, std::int64_t width) {
    ParameterInfo info;
    info.spec.name = std::move(name);
    info.spec.shape = info.local = {kRows, width};
    info.spec.role = Role::kRowTable;
    info.spec.decay = false;
    info.users = users_;
    info.index = static_cast<int>(parameters_.size());
    info.offset = {0, 0};
    parameters_.push_back(info);
  }
  void write(int table, const std::vector<double>& values) {
    std::vector<float> memory(values.begin(), values.end());
    std::vector<std::int64_t> ids(kRows);
    std::iota(ids.begin(), ids.end(), 0);
    set_->table(table)->write(ids, {memory.data(), {kRows, kWidth}, DType::kF32});
  }

  Device& device_;
  testing::Made<Optimizer> rule_;
  int users_;
  RowOptimizer* rows_ = nullptr;
  std::uint8_t first_holder_ = 1;
  std::vector<ParameterInfo> parameters_;
  std::unique_ptr<ParameterSet> set_;
  std::vector<RowTable*> states_;
};

void moves_the_rows_it_is_given(Subject& subject) {
  TableTrainee trainee(subject);
  const std::vector<std::int64_t> ids = {1, 4, 8};
  std::vector<std::vector<double>> before;
  for (std::int64_t id = 0; id < kRows; ++id) before.push_back(trainee.row(id));
  trainee.step({}, {}, 1, 1);
  for (std::int64_t count = 2; count <= 4; ++count)
    trainee.step(ids, drawn(subject, 3 * kWidth, fmt::format("row gradients {}", count)), count, 1);
  for (std::int64_t id = 0; id < kRows; ++id) {
    const bool given = std::find(ids.begin(), ids.end(), id) != ids.end();
    const bool moved = trainee.row(id) != before[id];
    if (given != moved) {
      fail(
          fmt::format("after gradients for rows 1, 4 and 8, row {} {}; step_rows moves the rows that the "
                      "gradient names, and no "
                      "other row or state",
                      id, moved ? "has moved" : "has not moved"));
    }
  }
}

void moves_rows_downhill(Subject& subject) {
  TableTrainee trainee(subject);
  const std::vector<double> bottom = drawn(subject, kWidth, "bottom");
  const auto loss = [&] {
    double sum = 0;
    const std::vector<double> w = trainee.weights(3);
    for (std::size_t i = 0; i < w.size(); ++i) sum += (w[i] - bottom[i]) * (w[i] - bottom[i]) / 2;
    return sum;
  };
  const double before = loss();
  for (std::int64_t count = 1; count <= 200; ++count) {
    std::vector<double> gradient = trainee.weights(3);
    for (std::size_t i = 0; i < gradient.size(); ++i) gradient[i] -= bottom[i];
    trainee.step({3}, gradient, count, 1);
  }
  if (!(loss() < before)) {
    fail(
        fmt::format("200 steps of one row at the rate {} took its loss |w - c|^2 / 2 from {:.6g} to {:.6g}; "
                    "it must fall",
                    trainee.lr(), before, loss()));
  }
}

void scales_row_gradients(Subject& subject) {
  TableTrainee scaled(subject), plain(subject);
  for (std::int64_t count = 1; count <= 3; ++count) {
    std::vector<double> gradient = drawn(subject, kWidth, fmt::format("row gradients {}", count));
    scaled.step({2}, gradient, count, 0.25);
    for (double& g : gradient) g = 0.25 * static_cast<float>(g);
    plain.step({2}, gradient, count, 1);
  }
  if (scaled.row(2) != plain.row(2))
    fail("row gradients with gradient_scale = 0.25 and gradients that are a quarter give other bits");
}

// The core sums the gradients of all nodes that read a table, so the rule sees a table that two nodes read as
// it sees one that a single node read, but for ParameterInfo::users and RowGradient::counts.
void moves_shared_tables_once(Subject& subject) {
  TableTrainee shared(subject, 2), alone(subject, 1);
  const std::vector<std::int64_t> ids = {1, 4, 8};
  for (std::int64_t count = 1; count <= 3; ++count) {
    // One node read the rows 1 and 4, the other 4 and, twice, 8.
    const std::vector<double> sums = drawn(subject, 3 * kWidth, fmt::format("sums {}", count));
    shared.step(ids, sums, {1, 2, 2}, count, 1);
    alone.step(ids, sums, count, 1);
    for (const std::int64_t id : ids) {
      if (shared.row(id) == alone.row(id)) continue;
      fail(fmt::format(
          "after update {} row {} of a table that two nodes read is not where the same gradient takes a "
          "row that was read once. RowGradient::values are sums over all nodes and reads already: apply "
          "them once, whatever RowGradient::counts and ParameterInfo::users say. A rule that weighs by "
          "counts on purpose suppresses this check",
          count, id));
    }
  }
}

constexpr const char* kOptimizerRowKind = Optimizer::kKind;
constexpr Check kOptimizerRowChecks[] = {
    {"optimizer.moves_the_rows_it_is_given", kOptimizerRowKind,
     "step_rows moves the rows of the gradient and no others", moves_the_rows_it_is_given},
    {"optimizer.moves_rows_downhill", kOptimizerRowKind, "the loss of one row falls", moves_rows_downhill},
    {"optimizer.moves_shared_tables_once", kOptimizerRowKind,
     "a table that two nodes read moves as one that a single node read", moves_shared_tables_once},
    {"optimizer.scales_row_gradients", kOptimizerRowKind, "gradient_scale holds for row tables too",
     scales_row_gradients},
};

}  // namespace

std::span<const Check> optimizer_row_checks() {
  return kOptimizerRowChecks;
}

}  // namespace tenon::conformance
