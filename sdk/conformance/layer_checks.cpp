// Checks of contract layer/1 except gradients.
#include "layer_world.hpp"
#include "thread_rounds.hpp"

#include <fmt/format.h>

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
    {"layer.refuses_strange_inputs", kLayerKind, "inputs that cannot work are a configuration error",
     refuses_strange_inputs},
};

}  // namespace

std::span<const Check> layer_checks() {
  return kLayerChecks;
}

}  // namespace tenon::conformance
