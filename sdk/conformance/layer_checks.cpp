// Checks of contract layer/1 except gradients.
#include "layer_world.hpp"
#include "thread_rounds.hpp"

#include <tenon/stepwise.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <thread>

namespace tenon::conformance {
namespace {

using testing::LayerHarness;

void infers_the_same_twice(Subject& subject) {
  LayerWorld world(subject);
  const auto first = world.build({}), second = world.build({});
  const auto& a = first->executor().parameters();
  const auto& b = second->executor().parameters();
  const auto text = [](const ParameterInfo& info) {
    return fmt::format("{} {} {}", info.spec.name, dtype_name(info.spec.dtype), info.spec.shape.text());
  };
  for (std::size_t i = 0; i < std::max(a.size(), b.size()); ++i) {
    const std::string one = i < a.size() ? text(a[i]) : "nothing",
                      other = i < b.size() ? text(b[i]) : "nothing";
    if (one != other)
      fail(fmt::format("two layers of equal options and inputs declare parameter {} and {}", one, other));
  }
  if (world.look(*first, {}) != world.look(*second, {}))
    fail("two layers of equal options, inputs and weights give other outputs");
}

/// Returns whether `change`, tried a few times, changes the layer's results.
template <typename Change>
bool shows(LayerWorld& world, LayerHarness& harness, Change change) {
  const Numbers before = world.look(harness, {});
  for (int draw = 1; draw <= 3; ++draw) {
    change(draw);
    if (world.look(harness, {}) != before) return true;
  }
  return false;
}

void uses_its_inputs(Subject& subject) {
  LayerWorld world(subject);
  const auto harness = world.build({});
  for (std::size_t i = 0; i < world.inputs().size(); ++i) {
    const Input& input = world.inputs()[i];
    if (!input.real && input.below == 1) continue;
    const auto redraw = [&](int draw) { harness->set_field(world.field(i), world.draw(input, i, draw)); };
    if (!shows(world, *harness, redraw))
      fail(fmt::format("other numbers in input {} change no output, loss or metric", i));
    redraw(0);
  }
}

void uses_its_parameters(Subject& subject) {
  LayerWorld world(subject);
  const auto harness = world.build({});
  for (const ParameterInfo& info : harness->executor().parameters()) {
    if (!info.spec.trainable || info.spec.role == Role::kBuffer) continue;
    const Numbers start = harness->parameter(info.spec.name);
    const auto move = [&](int draw) {
      Numbers moved = start;
      const RandomKey key = random_key(subject.seed(), info.spec.name);
      for (std::size_t i = 0; i < moved.size(); ++i)
        moved[i] += random_normal(key, static_cast<std::uint64_t>(draw), i);
      harness->set_parameter(info.spec.name, moved);
    };
    if (!shows(world, *harness, move)) {
      fail(fmt::format("other numbers in parameter {} change no output or loss: it would never learn",
                       info.spec.name));
    }
    harness->set_parameter(info.spec.name, start);
  }
}

void leaves_what_it_reads(Subject& subject) {
  LayerWorld world(subject);
  const auto harness = world.build({});
  const auto inputs = [&] {
    Numbers all;
    for (const TensorView& view : harness->executor().inputs()) {
      const Numbers values = testing::read(subject.device("reference"), view);
      all.insert(all.end(), values.begin(), values.end());
    }
    return all;
  };
  const auto parameters = [&] {
    NamedNumbers all;
    for (const ParameterInfo& info : harness->executor().parameters())
      all[info.spec.name] = harness->parameter(info.spec.name);
    return all;
  };
  const Numbers inputs_before = inputs();
  const NamedNumbers parameters_before = parameters();
  harness->forward();
  if (inputs() != inputs_before) fail("forward changed its inputs; others read them, too");
  harness->backward(1.0, true);
  if (inputs() != inputs_before) fail("backward changed the inputs of forward; others read them, too");
  if (parameters() != parameters_before)
    fail("forward or backward changed a parameter: that is the optimizer's part, and staged()'s for buffers");
}

void repeats(Subject& subject) {
  LayerWorld world(subject);
  const auto harness = world.build({});
  const Numbers outputs = world.look(*harness, {});
  const NamedNumbers expected = LayerWorld::gradients(*harness, {});
  world.load(*harness, 1);
  LayerWorld::gradients(*harness, {.slot = 3});
  world.load(*harness, 0);
  for (const ParameterInfo& info : harness->executor().parameters()) {
    const TensorView gradient = harness->gradients().tensor(info.index);
    if (gradient.empty()) continue;
    testing::write(subject.device("reference"), gradient,
                   Numbers(static_cast<std::size_t>(gradient.elements()), std::nan("")));
  }
  if (world.look(*harness, {}) != outputs)
    fail(
        "the same slot and batch again, after another one, gives other outputs: forward must not depend on "
        "earlier calls");
  same_gradients(LayerWorld::gradients(*harness, {}), expected,
                 "the same slot and batch again, after another one, gives other gradients: each call writes "
                 "(accumulate = false) or adds (true) as its sink says, whatever the memory holds");
}

void shares_nothing(Subject& subject) {
  LayerWorld world(subject);
  const auto alone = world.build({});
  const NamedNumbers expected = LayerWorld::gradients(*alone, {});
  const auto one = world.build({}), other = world.build({.draw = 1});
  one->forward();
  LayerWorld::gradients(*other, {});
  one->backward(1.0, true);
  same_gradients(one->all_gradients(), expected,
                 "a layer gives other bits when another object of its class runs in between: ranks are "
                 "threads of one process, so nothing may be static");

  const testing::Made<Device> own = subject.another_device("reference");
  const auto there = world.build({.draw = 1, .device = &*own});
  std::string problem;
  std::thread thread([&] {
    try {
      for (int i = 0; i < 50; ++i) LayerWorld::gradients(*there, {});
    } catch (const std::exception& error) {
      problem = error.what();
    }
  });
  bool same = true;
  for (int i = 0; i < 50; ++i) same = same && LayerWorld::gradients(*one, {}) == expected;
  thread.join();
  if (!problem.empty()) fail("a second thread with a layer of its own ended with: " + problem);
  if (!same) fail("a layer gives other bits while a second thread runs another object of its class");
}

void evaluates(Subject& subject) {
  LayerWorld world(subject);
  const auto training = world.build({}), evaluation = world.build({.training = false});
  const RunSpec first{.training = false}, later{.slot = 5, .first_sample = 100, .training = false};
  const Numbers expected = world.look(*evaluation, first);
  if (world.look(*evaluation, later) != expected)
    fail("an evaluation gives other bits in another slot: nothing is drawn where training() is false");
  if (world.look(*training, first) != expected)
    fail(
        "an evaluation gives other bits in a graph that was built for training than in one that was built "
        "for evaluation");
}

void draws_by_position(Subject& subject) {
  LayerWorld world(subject);
  const std::int64_t batch = world.inputs()[0].shape[0];
  if (batch % 2 != 0) not_applicable("the batch of its inputs cannot be halved");
  const auto whole = world.build({}), half = world.build({.batch = batch / 2});
  const RunSpec slot{.slot = 4};
  const Numbers expected = world.look(*whole, slot);
  if (world.look(*whole, {.slot = 5}) == expected) not_applicable("it draws nothing");
  const auto in_halves = [&](bool training) {
    Numbers joined;
    for (int part = 0; part < 2; ++part) {
      for (std::size_t i = 0; i < world.inputs().size(); ++i) {
        const Numbers all = whole->field(world.field(i));
        const auto middle = all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2);
        half->set_field(world.field(i),
                        part == 0 ? Numbers(all.begin(), middle) : Numbers(middle, all.end()));
      }
      half->forward(
          {.slot = 4, .micro = part, .micros = 2, .first_sample = part * batch / 2, .training = training});
      const Numbers values = half->value("subject");
      joined.insert(joined.end(), values.begin(), values.end());
    }
    return joined;
  };
  const auto at_once = [&](bool training) {
    whole->forward({.slot = 4, .training = training});
    return whole->value("subject");
  };
  constexpr double kRounding = 1e-9;  // sums may be computed in another order
  if (testing::relative_error(in_halves(false), at_once(false)) > kRounding)
    not_applicable("its samples are not independent of each other");
  if (testing::relative_error(in_halves(true), at_once(true)) > kRounding)
    fail(
        "two micro-batches of half the size draw other numbers than one batch: count from first_element(), "
        "so that a run gives the same numbers on any number of ranks");
}

/// A batch of more than four blocks of rows and, where a sample is not too small, of elements.
std::int64_t large_batch(const LayerWorld& world) {
  constexpr std::int64_t kRows = 5 * 64 + 7, kMostRows = 8192;
  std::int64_t rows = kRows;
  for (const Input& input : world.inputs()) {
    const std::int64_t sample = Shape(std::span<const std::int64_t>(input.shape)).elements() / input.shape[0];
    if (input.real) rows = std::max(rows, std::min(kMostRows, kManyElements / sample + 1));
  }
  return rows;
}

void slots_have_the_same_bits(Subject& subject) {
  LayerWorld world(subject);
  const std::int64_t batch = large_batch(world);
  for (const char* precision : {"fp64", "fp32"}) {
    require_same_bits(
        subject, fmt::format("a slot with {} samples in {}", batch, precision), [&](Device& device) {
          const auto harness = world.build({.precision = precision, .batch = batch, .device = &device});
          Numbers all = world.look(*harness, {});
          for (const auto& [name, values] : LayerWorld::gradients(*harness, {}))
            all.insert(all.end(), values.begin(), values.end());
          return all;
        });
  }
}

/// Inputs that differ in number, rank and dtype from those that the layer accepted.
std::vector<std::vector<Input>> strange(const std::vector<Input>& taken) {
  std::vector<std::vector<Input>> all = {
      {}, {{{4}}}, {{{4}, false, 2}}, {{{2, 2, 2, 2, 2, 2}}}, {{{4, 6}}, {{4, 5, 2}}}};
  std::vector<Input> more = taken, deeper = taken, shallower = taken, flipped = taken;
  more.push_back(taken[0]);
  for (Input& input : deeper) input.shape.push_back(3);
  for (Input& input : shallower) input.shape.resize(1);
  for (Input& input : flipped) input.real = !input.real;
  all.insert(all.end(), {more, deeper, shallower, flipped});
  return all;
}

void refuses_strange_inputs(Subject& subject) {
  LayerWorld world(subject);
  for (const std::vector<Input>& inputs : strange(world.inputs())) {
    std::string text;
    for (const Input& input : inputs)
      text += fmt::format(" {} {}", input.real ? "real" : "i32",
                          Shape(std::span<const std::int64_t>(input.shape)).text());
    try {
      world.try_inputs(inputs);
    } catch (const std::exception& error) {
      const auto* refusal = dynamic_cast<const Error*>(&error);
      if (refusal != nullptr && refusal->kind() == ErrorKind::kConfig) continue;
      fail(
          fmt::format("inputs{}: infer() ended with \"{}\"; refuse what cannot work with fail_config, which "
                      "says what was expected and found",
                      text.empty() ? " none" : text, error.what()));
    }
  }
}

/// A layer with an ability of <tenon/stepwise.hpp>, by any passes over the positions of its inputs.
class Stepping {
 public:
  explicit Stepping(Subject& subject) : world_(subject), draws_(random_key(subject.seed(), "passes")) {
    if (!world_.has_outputs()) not_applicable("it has no outputs");
    for (const Input& input : world_.inputs()) {
      if (input.shape.size() < 2 || input.shape[1] != world_.inputs()[0].shape[1])
        not_applicable("its inputs have no positions along dimension 1");
    }
    batch_ = world_.inputs()[0].shape[0], positions_ = world_.inputs()[0].shape[1];
    whole_ = world_.build({.training = false});
    if (!world_.offers(PositionwiseLayer::kId) && !world_.offers(StepwiseLayer::kId))
      not_applicable(fmt::format("it offers neither {} nor {}", PositionwiseLayer::kId, StepwiseLayer::kId));
    for (const std::string& output : world_.outputs()) {
      const Shape shape = whole_->executor().value(output).shape;
      if (shape.rank() < 2 || shape[0] != batch_ || shape[1] != positions_) {
        fail(fmt::format(
            "it offers to run by positions, which dimension 1 counts, and its output '{}' is {} for "
            "{} samples of {} positions",
            output, shape.text(), batch_, positions_));
      }
    }
    for (const std::int64_t time : {std::int64_t{1}, std::int64_t{2}, positions_})
      passes_.push_back({time, world_.build({.training = false, .positions = positions_, .time = time})});
    // A row of the state more than samples, and the samples not in its order.
    state_ = passes_[0].harness->executor().make_sequences(batch_ + 1);
  }

  /// Fails unless random passes over the inputs of `draw` give the bits of one forward.
  void check(int draw) {
    world_.load(*whole_, draw);
    whole_->forward({.training = false});
    std::vector<std::int64_t> done(batch_, 0);
    while (std::any_of(done.begin(), done.end(), [&](std::int64_t d) { return d < positions_; })) {
      const Pass& pass = passes_[below(passes_.size())];
      std::vector<std::int64_t> count(batch_), kept(batch_);
      for (std::int64_t row = 0; row < batch_; ++row) {
        count[row] = std::min(positions_ - done[row], static_cast<std::int64_t>(below(pass.time + 1)));
        kept[row] = (row + 1 + draw) % (batch_ + 1);
      }
      run(pass, draw, {.first = done, .count = count, .kept = kept});
      for (std::int64_t row = 0; row < batch_; ++row) done[row] += count[row];
    }
  }

 private:
  struct Pass {
    std::int64_t time;
    std::unique_ptr<LayerHarness> harness;
  };

  std::uint64_t below(std::uint64_t bound) { return random_below(draws_, 0, next_++, bound); }

  /// Numbers of the places of a pass, [batch, time, ...]: those of the whole, and `padding` after them.
  Numbers places(const Numbers& whole, const Numbers& padding, std::int64_t time, const StepRun& run) const {
    const std::int64_t width = std::ssize(whole) / (batch_ * positions_);
    Numbers result;
    for (std::int64_t row = 0; row < batch_; ++row) {
      for (std::int64_t place = 0; place < time; ++place) {
        const bool counts = place < run.count[row];
        const std::int64_t position = counts ? run.first[row] + place : place;
        const auto from = (counts ? whole : padding).begin() + (row * positions_ + position) * width;
        result.insert(result.end(), from, from + width);
      }
    }
    return result;
  }

  void run(const Pass& pass, int draw, const StepRun& run) {
    constexpr int kPadding = 7;
    for (std::size_t i = 0; i < world_.inputs().size(); ++i) {
      const Input& input = world_.inputs()[i];
      pass.harness->set_field(world_.field(i), places(world_.draw(input, i, draw),
                                                      world_.draw(input, i, kPadding), pass.time, run));
    }
    pass.harness->executor().step(pass.harness->weights(), *state_, run);
    for (const std::string& output : world_.outputs()) {
      const Numbers whole = whole_->value(output), found = pass.harness->value(output),
                    expected = places(whole, whole, pass.time, run);
      const std::int64_t width = std::ssize(whole) / (batch_ * positions_);
      for (std::int64_t i = 0; i < std::ssize(found); ++i) {
        const std::int64_t row = i / width / pass.time, place = i / width % pass.time;
        if (place >= run.count[row] || found[i] == expected[i]) continue;
        fail(fmt::format(
            "position {} of a sample is {} in '{}' where a pass adds {} positions from {} on, and {} "
            "in one forward over all {}: a layer that offers {} or {} gives the same bits however "
            "a sequence is split",
            run.first[row] + place, found[i], output, run.count[row], run.first[row], expected[i], positions_,
            PositionwiseLayer::kId, StepwiseLayer::kId));
      }
    }
  }

  LayerWorld world_;
  RandomKey draws_;
  std::uint64_t next_ = 0;
  std::int64_t batch_ = 0, positions_ = 0;
  std::unique_ptr<LayerHarness> whole_;
  std::vector<Pass> passes_;
  std::unique_ptr<SequenceState> state_;
};

void steps_as_a_whole(Subject& subject) {
  Stepping stepping(subject);
  for (int draw = 0; draw < 4; ++draw) stepping.check(draw);
}

constexpr const char* kLayerKind = Layer::kKind;
constexpr Check kLayerChecks[] = {
    {"layer.infers_the_same_twice", kLayerKind, "parameters and outputs follow from options and inputs alone",
     infers_the_same_twice},
    {"layer.uses_its_inputs", kLayerKind, "every input changes an output, a loss or a metric",
     uses_its_inputs},
    {"layer.uses_its_parameters", kLayerKind, "every trainable parameter changes an output or a loss",
     uses_its_parameters},
    {"layer.leaves_what_it_reads", kLayerKind, "inputs and parameters are read and never written",
     leaves_what_it_reads},
    {"layer.repeats", kLayerKind, "a slot gives the same bits after another one, and in dirty memory",
     repeats},
    {"layer.shares_nothing", kLayerKind,
     "two objects, interleaved or in two threads, do not influence each other", shares_nothing},
    {"layer.evaluates", kLayerKind,
     "an evaluation draws nothing and does not depend on how the graph was built", evaluates},
    {"layer.draws_by_position", kLayerKind, "random numbers do not depend on how the batch is cut",
     draws_by_position},
    {"layer.same_bits_on_any_threads", kLayerKind, "1, 2 and 4 threads give the same bits, in every round",
     slots_have_the_same_bits, 60},
    {"layer.steps_as_a_whole", kLayerKind,
     "a layer that runs by positions gives the same bits however a sequence is split", steps_as_a_whole},
    {"layer.refuses_strange_inputs", kLayerKind, "inputs that cannot work are a configuration error",
     refuses_strange_inputs},
};

}  // namespace

std::span<const Check> layer_checks() {
  return kLayerChecks;
}

}  // namespace tenon::conformance
