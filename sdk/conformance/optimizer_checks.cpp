// Checks of contract optimizer/1 for dense updates; optimizer_row_checks.cpp covers row tables.
#include "thread_rounds.hpp"
#include "trainee.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

namespace tenon::conformance {
namespace {

const Shape kSmall{5, 6};
constexpr DType kTypes[] = {DType::kF32, DType::kF64};

/// Number formats of weights: those that the rule takes, and its words about one that it refuses with
/// fail_config.
struct Formats {
  std::vector<DType> taken;
  std::string refusal;
};

Formats formats_of(Subject& subject) {
  Formats formats;
  for (const DType dtype : kTypes) {
    try {
      Trainee trainee(subject, dtype, kSmall);
      trainee.step(std::vector<double>(kSmall.elements(), 0.0), {.lr = trainee.rule().base_lr()});
      formats.taken.push_back(dtype);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kConfig) throw;
      formats.refusal = fmt::format("it refuses {} weights: {}", dtype_name(dtype), error.what());
    }
  }
  if (formats.taken.empty()) not_applicable(formats.refusal);
  return formats;
}

std::vector<double> gradients_of(const Subject& subject, std::int64_t count, std::int64_t step) {
  return drawn(subject, count, fmt::format("gradients {}", step));
}

/// Steps `first` .. `last`, with decay in the odd ones.
void train(const Subject& subject, Trainee& trainee, std::int64_t first, std::int64_t last) {
  const auto elements = static_cast<std::int64_t>(trainee.weights().size());
  for (std::int64_t count = first; count <= last; ++count) {
    trainee.step(gradients_of(subject, elements, count),
                 {.lr = trainee.rule().base_lr(), .count = count, .decay = count % 2 == 1});
  }
}

double half_square_distance(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += (a[i] - b[i]) * (a[i] - b[i]) / 2;
  return sum;
}

void moves_downhill(Subject& subject) {
  for (const DType dtype : formats_of(subject).taken) {
    for (int start = 0; start < 3; ++start) {
      Trainee trainee(subject, dtype, kSmall);
      trainee.set_weights(drawn(subject, kSmall.elements(), fmt::format("start {}", start)));
      const std::vector<double> bottom = drawn(subject, kSmall.elements(), fmt::format("bottom {}", start));
      const double before = half_square_distance(trainee.weights(), bottom);
      for (std::int64_t count = 1; count <= 200; ++count) {
        std::vector<double> gradient = trainee.weights();
        for (std::size_t i = 0; i < gradient.size(); ++i) gradient[i] -= bottom[i];
        trainee.step(gradient, {.lr = trainee.rule().base_lr(), .count = count});
      }
      const double after = half_square_distance(trainee.weights(), bottom);
      if (!(after < before)) {
        fail(
            fmt::format("200 steps at the rate {} in the bowl |w - c|^2 / 2 ({}, without decay) took the "
                        "loss from {:.6g} to "
                        "{:.6g}; it must fall",
                        trainee.rule().base_lr(), dtype_name(dtype), before, after));
      }
    }
  }
}

void rests_at_rate_zero(Subject& subject) {
  Trainee trainee(subject, DType::kF32, kSmall);
  const std::vector<double> before = trainee.weights();
  for (std::int64_t count = 1; count <= 3; ++count)
    trainee.step(gradients_of(subject, kSmall.elements(), count), {.lr = 0, .count = count, .decay = true});
  if (trainee.weights() != before)
    fail(
        "the weights moved at the rate 0; multiply the step by UpdateContext::lr, which follows the "
        "schedule, and not by the option");
}

void resumes_exactly(Subject& subject) {
  for (const DType dtype : formats_of(subject).taken) {
    Trainee whole(subject, dtype, kSmall), first(subject, dtype, kSmall), second(subject, dtype, kSmall);
    train(subject, whole, 1, 8);
    train(subject, first, 1, 5);
    second.resume_from(first);
    train(subject, second, 6, 8);
    if (second.everything() != whole.everything()) {
      fail(
          fmt::format("8 steps ({}) end in other bits when weights, slots and state() are carried to a new "
                      "object after 5: what else the rule remembers belongs into a slot or into state()",
                      dtype_name(dtype)));
    }
  }
}

void cuts_freely(Subject& subject) {
  using Cut = std::pair<std::int64_t, std::int64_t>;
  if (!subject.make<Optimizer>()->elementwise()) not_applicable("the rule is not elementwise");
  constexpr std::int64_t kElements = 5003;  // more than one block of threads, and no multiple of a vector
  const std::vector<Cut> cuts = {{0, 16}, {16, 16}, {16, 80}, {80, 4112}, {4112, kElements}};
  for (const DType dtype : formats_of(subject).taken) {
    Trainee whole(subject, dtype, {kElements}), cut(subject, dtype, {kElements});
    for (std::int64_t count = 1; count <= 3; ++count) {
      const std::vector<double> gradients = gradients_of(subject, kElements, count);
      const Update update{.lr = whole.rule().base_lr(), .count = count, .decay = true};
      whole.step(gradients, update);
      cut.step(gradients, update, cuts);
    }
    if (whole.everything() != cut.everything()) {
      fail(
          fmt::format("an elementwise rule gives other bits ({}) when {} elements come as slices of 16, 0, "
                      "64, 4032 and 891 "
                      "than in one; a slice may hold several parameters or a part of one",
                      dtype_name(dtype), kElements));
    }
  }
}

void scales_gradients(Subject& subject) {
  constexpr double kScale = 0.25;  // exact in every format
  Trainee scaled(subject, DType::kF32, kSmall), plain(subject, DType::kF32, kSmall);
  for (std::int64_t count = 1; count <= 3; ++count) {
    std::vector<double> gradients = gradients_of(subject, kSmall.elements(), count);
    const double lr = plain.rule().base_lr();
    scaled.step(gradients, {.lr = lr, .count = count, .gradient_scale = kScale, .decay = true});
    for (double& g : gradients) g = kScale * static_cast<float>(g);
    plain.step(gradients, {.lr = lr, .count = count, .decay = true});
  }
  if (scaled.everything() != plain.everything())
    fail(
        "gradients with gradient_scale = 0.25 and gradients that are a quarter give other bits; multiply by "
        "gradient_scale as they are read, before anything else");
}

void keeps_f64(Subject& subject) {
  const Formats formats = formats_of(subject);
  if (std::find(formats.taken.begin(), formats.taken.end(), DType::kF64) == formats.taken.end())
    not_applicable(formats.refusal);
  Trainee trainee(subject, DType::kF64, kSmall);
  train(subject, trainee, 1, 3);
  const std::vector<double> weights = trainee.weights();
  if (std::all_of(weights.begin(), weights.end(), [](double w) { return w == static_cast<float>(w); }))
    fail("every f64 weight is a float after three steps; compute in the number format of the weights");
}

void stays_finite(Subject& subject) {
  for (const double size : {0.0, 1e-30, 1e15}) {
    Trainee trainee(subject, DType::kF32, kSmall);
    for (std::int64_t count = 1; count <= 3; ++count) {
      std::vector<double> gradients = gradients_of(subject, kSmall.elements(), count);
      for (double& g : gradients) g *= size;
      trainee.step(gradients, {.lr = trainee.rule().base_lr(), .count = count, .decay = true});
    }
    for (const double w : trainee.weights()) {
      if (!std::isfinite(w)) fail(fmt::format("gradients of size {:g} made a weight {}", size, w));
    }
  }
}

void stays_inside(Subject& subject) {
  for (const DType dtype : formats_of(subject).taken) {
    for (const Shape& shape : {Shape{1, 1}, kSmall, Shape{3, 43}}) {
      Trainee trainee(subject, dtype, shape);
      train(subject, trainee, 1, 2);
      if (!trainee.stayed_inside()) {
        fail(fmt::format("an update of {} {} elements wrote outside of its slice, or padded it",
                         shape.elements(), dtype_name(dtype)));
      }
    }
  }
}

void shares_nothing(Subject& subject) {
  Trainee alone(subject, DType::kF32, kSmall), one(subject, DType::kF32, kSmall),
      other(subject, DType::kF32, {7, 2});
  train(subject, alone, 1, 4);
  for (std::int64_t count = 1; count <= 4; ++count) {
    train(subject, one, count, count);
    train(subject, other, count, count);
  }
  if (one.everything() != alone.everything())
    fail(
        "an optimizer gives other bits when another object of its class steps in between: ranks are threads "
        "of one process, so nothing may be static");
}

void steps_have_the_same_bits(Subject& subject) {
  constexpr int kSteps = 3;
  // Whole tensors are matrices of about as many elements, low ones because rules multiply them by each other.
  const bool flat = subject.make<Optimizer>()->elementwise();
  const Shape shape = flat ? Shape{kManyElements} : Shape{48, 1709};
  std::vector<double> start = drawn(subject, shape.elements(), "start");
  for (std::size_t i = 0; i < start.size(); i += 2)
    start[i] = 0;  // the step of these is not rounded to a weight
  std::vector<std::vector<double>> gradients;
  for (int step = 0; step < kSteps; ++step)
    gradients.push_back(gradients_of(subject, shape.elements(), step));
  for (const DType dtype : formats_of(subject).taken) {
    require_same_bits(
        subject, fmt::format("{} steps of {} {} weights", kSteps, shape.elements(), dtype_name(dtype)),
        [&](Device& device) {
          Trainee trainee(subject, dtype, shape, &device);
          trainee.set_weights(start);
          for (int step = 0; step < kSteps; ++step) {
            trainee.step(gradients[static_cast<std::size_t>(step)],
                         {.lr = trainee.rule().base_lr(), .count = step + 1, .decay = step % 2 == 1});
          }
          return trainee.everything();
        });
  }
}

void names_its_slots(Subject& subject) {
  const testing::Made<Optimizer> rule = subject.make<Optimizer>();
  std::set<std::string> names;
  for (const StateSlot& slot : rule->slots()) {
    const std::string name = slot.name == nullptr ? "" : slot.name;
    if (name.empty() || name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") != std::string::npos)
      fail(fmt::format("slot '{}': names are made of a-z, 0-9 and _, for checkpoints carry them", name));
    if (!names.insert(name).second)
      fail(fmt::format("two slots are called '{}': checkpoints find a slot by its name", name));
  }
}

constexpr const char* kOptimizerKind = Optimizer::kKind;
constexpr Check kOptimizerChecks[] = {
    {"optimizer.moves_downhill", kOptimizerKind, "the loss of a quadratic bowl falls, in f32 and f64",
     moves_downhill},
    {"optimizer.rests_at_rate_zero", kOptimizerKind, "at the rate 0 the weights stay as they are",
     rests_at_rate_zero},
    {"optimizer.resumes_exactly", kOptimizerKind, "slots and state() are all that the rule remembers",
     resumes_exactly},
    {"optimizer.cuts_freely", kOptimizerKind, "an elementwise rule gives the same bits however it is sliced",
     cuts_freely},
    {"optimizer.scales_gradients", kOptimizerKind, "gradient_scale times the gradient is the gradient",
     scales_gradients},
    {"optimizer.keeps_f64", kOptimizerKind, "f64 weights are updated in f64", keeps_f64},
    {"optimizer.stays_finite", kOptimizerKind, "zero, tiny and huge gradients leave finite weights",
     stays_finite},
    {"optimizer.stays_inside", kOptimizerKind, "nothing beside the slice is written", stays_inside},
    {"optimizer.shares_nothing", kOptimizerKind, "two objects do not influence each other", shares_nothing},
    {"optimizer.same_bits_on_any_threads", kOptimizerKind,
     "1, 2 and 4 threads give the same bits, in every round", steps_have_the_same_bits, 60},
    {"optimizer.names_its_slots", kOptimizerKind, "state slots have names of their own", names_its_slots},
};

}  // namespace

std::span<const Check> optimizer_checks() {
  return kOptimizerChecks;
}

}  // namespace tenon::conformance
