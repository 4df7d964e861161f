// Checks of contract transform/1: the description is sound, pure, and what run() writes; the result depends
// on sources and options alone; sources stay as they are; what a transform cannot take is an error.
#include "subject.hpp"

#include <tenon/error.hpp>
#include <tenon/random.hpp>
#include <tenon/tensor_values.hpp>
#include <tenon/testing/stored_models.hpp>
#include <tenon/transform.hpp>

#include <fmt/format.h>

#include <malloc.h>

#include <bit>
#include <cmath>
#include <initializer_list>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace tenon::conformance {
namespace {

using testing::MemoryModel;
using testing::MemoryWriter;
using testing::StoredBytes;

constexpr std::size_t kMostSources = 4;

template <typename T>
std::vector<T> kit_values(std::uint64_t seed, std::string_view name, std::int64_t count) {
  const RandomKey key = random_key(seed, name);
  std::vector<T> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<T>(random_normal(key, 0, i));
  return values;
}

/// A language model with a tied head and tensors of every floating-point type, without elements and without
/// dimensions, and one of several MiB. `seed` sets its real numbers alone. `wider`: every width is another.
MemoryModel kit_model(std::uint64_t seed, std::int64_t wider = 0) {
  const std::int64_t width = 6 + wider;
  MemoryModel model(fmt::format("type = \"conformance\"\nlayers = 2\nwidth = {}\ntied = true", width),
                    fmt::format("models/{}", seed));
  const auto add = [&](const std::string& name, const Shape& shape) {
    model.add(name, DType::kF32, shape, kit_values<float>(seed, name, shape.elements()));
  };
  add("embed.weight", Shape{11, width});
  for (int layer = 0; layer < 2; ++layer) {
    add(fmt::format("layers.{}.norm.weight", layer), Shape{width});
    add(fmt::format("layers.{}.mlp.weight", layer), Shape{4 * width, width});
  }
  // Larger than a slice; drawn without a generator, since it is made often.
  std::vector<float> table(1300 * 1000);
  for (std::size_t i = 0; i < table.size(); ++i)
    table[i] = static_cast<float>((i * 2654435761U + seed) % 65537) / 65536 - 0.5F;
  model.add("table.weight", DType::kF32, Shape{1300, 1000}, table);
  add("scale", Shape{});
  add("empty", Shape{0, width});
  model.add("wide.weight", DType::kF64, Shape{3, 2}, kit_values<double>(seed, "wide", 6));
  model.add("modes", DType::kC64, Shape{2, 3}, kit_values<float>(seed, "modes", 12));
  model.add("calls", DType::kI64, Shape{2}, std::vector<std::int64_t>{7, std::int64_t{1} << 60});
  std::vector<std::uint16_t> halves;
  for (const float value : kit_values<float>(seed, "half", 15))
    halves.push_back(static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16));
  model.add("half.weight", DType::kBF16, Shape{5, 3}, halves);
  model.describe().attributes.push_back({"vocabulary", 11});
  model.set_digest(fmt::format("{:064x}", seed));
  model.set_graph(
      {NodeList{{"embed", "embedding", {"tokens"}, {{"rows", std::int64_t{11}}, {"width", width}}},
                {"layers.0.norm", "rms_norm", {"embed"}, {}},
                {"layers.0.mlp", "linear", {"layers.0.norm"}, {{"features", 4 * width}}},
                {"head",
                 "head_cross_entropy",
                 {"layers.0.mlp", "targets"},
                 {{"weight", std::string("embed.weight")}}}}});
  return model;
}

std::vector<StoredModel*> pointers(std::vector<MemoryModel>& models) {
  std::vector<StoredModel*> list;
  for (MemoryModel& model : models) list.push_back(&model);
  return list;
}

/// As many models of equal shapes as the transform takes. Throws NotApplicable if it takes none of them.
std::vector<MemoryModel> models_for(Transform& transform, std::uint64_t seed) {
  std::vector<MemoryModel> models;
  std::string reason;
  for (std::size_t count = 1; count <= kMostSources; ++count) {
    models.push_back(kit_model(seed + count));
    try {
      transform.describe(pointers(models));
      return models;
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kConfig) throw;
      if (reason.empty()) reason = error.what();
    }
  }
  not_applicable(
      fmt::format("it takes none of the kit's models, one to {} language models of equal shapes: {}",
                  kMostSources, reason));
}

std::string text_of(const TransformedModel& model) {
  std::string text = to_toml(model.description.model, false);
  for (const DataAttribute& attribute : model.description.attributes)
    text += fmt::format("{} = {}\n", attribute.name, attribute.value);
  for (const StoredTensor& tensor : model.parameters)
    text += fmt::format("{} {} {}\n", tensor.name, dtype_name(tensor.dtype), tensor.shape.text());
  return text;
}

void describes_its_result(Subject& subject) {
  const testing::Made<Transform> made = subject.make<Transform>(), again = subject.make<Transform>();
  std::vector<MemoryModel> models = models_for(*made, subject.seed());
  const std::vector<StoredModel*> sources = pointers(models);
  const TransformedModel first = made->describe(sources);
  const Value* type = first.description.model.find("type");
  if (type == nullptr || !type->is_text())
    fail("the description's table [model] has no type; copy that of a source and change what differs");
  if (first.parameters.empty()) fail("describe() lists no parameter");
  std::string last;
  for (const StoredTensor& tensor : first.parameters) {
    if (tensor.name <= last)
      fail(fmt::format("describe() lists parameter '{}' after '{}': names ascend, and none is given twice",
                       tensor.name, last));
    last = tensor.name;
  }
  const std::string before = text_of(first);
  const auto compare = [&](Transform& transform, const char* when) {
    const std::string after = text_of(transform.describe(sources));
    if (after != before) fail(fmt::format("the description {} is\n{}and was\n{}", when, after, before));
  };
  compare(*made, "of a second call");
  compare(*again, "by a second object");
  MemoryWriter out(first);
  made->run(sources, out);
  compare(*made, "after run()");
}

void writes_what_it_describes(Subject& subject) {
  const testing::Made<Transform> made = subject.make<Transform>();
  std::vector<MemoryModel> models = models_for(*made, subject.seed());
  const MemoryWriter out = testing::transformed(*made, pointers(models));
  if (!out.incomplete().empty())
    fail(fmt::format("run() returned, and tensor '{}' that describe() listed is not complete",
                     out.incomplete()));
}

/// Bytes of a run by a fresh object, in memory that holds `pattern` where nothing was written.
std::map<std::string, StoredBytes> run_with(Subject& subject, std::vector<MemoryModel>& models, int pattern) {
  ::mallopt(M_PERTURB, pattern);
  const testing::Made<Transform> made = subject.make<Transform>();
  std::map<std::string, StoredBytes> tensors = testing::transformed(*made, pointers(models)).tensors();
  ::mallopt(M_PERTURB, 0);
  return tensors;
}

void transform_repeats(Subject& subject) {
  const testing::Made<Transform> made = subject.make<Transform>();
  std::vector<MemoryModel> models = models_for(*made, subject.seed());
  const auto expected = run_with(subject, models, 0x5A);
  const auto compare = [&](const std::map<std::string, StoredBytes>& found, const char* when) {
    for (const auto& [name, bytes] : expected) {
      if (found.at(name) != bytes)
        fail(fmt::format("tensor '{}' is other bytes {}: a result depends on sources and options alone", name,
                         when));
    }
  };
  compare(run_with(subject, models, 0xA5), "from a second object, in memory that held something else");
  compare(testing::transformed(*made, pointers(models)).tensors(), "from a third object");
  compare(testing::transformed(*made, pointers(models)).tensors(), "when run() is called again");
}

void leaves_its_sources(Subject& subject) {
  const testing::Made<Transform> made = subject.make<Transform>();
  std::vector<MemoryModel> models = models_for(*made, subject.seed());
  testing::transformed(*made, pointers(models));
  for (std::size_t i = 0; i < models.size(); ++i) {
    const MemoryModel fresh = kit_model(subject.seed() + i + 1);
    const auto text = [](const MemoryModel& model) {
      const auto parameters = model.parameters();
      return text_of({model.description(), {parameters.begin(), parameters.end()}});
    };
    if (text(models[i]) != text(fresh))
      fail(fmt::format("source {} was\n{}and is\n{}", i, text(fresh), text(models[i])));
    for (const StoredTensor& tensor : fresh.parameters()) {
      if (models[i].bytes(tensor.name) != fresh.bytes(tensor.name))
        fail(fmt::format("tensor '{}' of source {} was written to", tensor.name, i));
    }
  }
}

void stays_finite(Subject& subject) {
  const testing::Made<Transform> made = subject.make<Transform>();
  std::vector<MemoryModel> models = models_for(*made, subject.seed());
  const TransformedModel planned = made->describe(pointers(models));
  const MemoryWriter out = testing::transformed(*made, pointers(models));
  for (const StoredTensor& tensor : planned.parameters) {
    const StoredBytes bytes = out.bytes(tensor.name);
    std::vector<std::byte> copy = bytes;
    for_each_real({copy.data(), tensor.shape, tensor.dtype, MemorySpace::kHost}, [&](double value) {
      if (!std::isfinite(value))
        fail(
            fmt::format("tensor '{}' holds {}, and all numbers of the sources are finite; throw by fail_run "
                        "where a value cannot be held",
                        tensor.name, value));
    });
  }
}

void refuses_by_error(Subject& subject) {
  const testing::Made<Transform> made = subject.make<Transform>();
  const auto attempt = [&](const char* what, std::vector<MemoryModel> models) {
    try {
      const std::vector<StoredModel*> sources = pointers(models);
      const MemoryWriter out = testing::transformed(*made, sources);
      if (!out.incomplete().empty())
        fail(fmt::format("{}: run() returned without an error, and tensor '{}' is not complete", what,
                         out.incomplete()));
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::kConfig || error.kind() == ErrorKind::kRun) return;
      fail(fmt::format(
          "{}: expected fail_config where it cannot take the sources, found another kind of error: {}", what,
          error.what()));
    } catch (const std::exception& error) {
      fail(fmt::format(
          "{}: expected fail_config where it cannot take the sources, found an exception of another "
          "type: {}",
          what, error.what()));
    }
  };
  const auto list = [&](std::initializer_list<int> wider) {
    std::vector<MemoryModel> models;
    for (const int by : wider) models.push_back(kit_model(subject.seed() + models.size(), by));
    return models;
  };
  const auto bare = [](const char* table) {
    MemoryModel model(table);
    model.refuse_graph("this model has no graph");
    return model;
  };
  attempt("without a source", {});
  attempt("a model without parameters", {bare("type = \"conformance\"")});
  attempt("two models without a type", {bare(""), bare("")});
  attempt("one model of other widths", list({3}));
  attempt("two models of different widths", list({0, 3}));
  attempt("a model with parameters beside one without any", {kit_model(1), bare("type = \"conformance\"")});
  attempt("five models", list({0, 0, 0, 0, 0}));
}

constexpr const char* kTransformKind = Transform::kKind;
constexpr Check kTransformChecks[] = {
    {"transform.describes_its_result", kTransformKind,
     "the description is sound, and the same for equal options and sources", describes_its_result, 60},
    {"transform.writes_what_it_describes", kTransformKind,
     "run() writes the tensors of describe() in their order, of their types, whole", writes_what_it_describes,
     60},
    {"transform.repeats", kTransformKind, "equal sources give equal bytes, in any object and memory",
     transform_repeats, 120, false, "transform.writes_what_it_describes"},
    {"transform.leaves_its_sources", kTransformKind, "sources are read and never changed", leaves_its_sources,
     60, false, "transform.writes_what_it_describes"},
    {"transform.stays_finite", kTransformKind, "finite sources give finite results, or an error",
     stays_finite, 60, false, "transform.writes_what_it_describes"},
    {"transform.refuses_by_error", kTransformKind,
     "sources of another number or shape are taken or refused, without a crash", refuses_by_error, 120},
};

}  // namespace

std::span<const Check> transform_checks() {
  return kTransformChecks;
}

}  // namespace tenon::conformance
