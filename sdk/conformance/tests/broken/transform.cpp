// Transforms that are wrong in one way each.
#include <tenon/plugin.hpp>
#include <tenon/sdk/stored_slices.hpp>
#include <tenon/transform.hpp>

#include <cmath>
#include <memory>
#include <stdexcept>
#include <vector>

namespace {

using namespace tenon;

/// The first source as it is.
class Base : public Transform {
 public:
  explicit Base(const Options&) {}
  TransformedModel describe(std::span<StoredModel* const> sources) override {
    if (sources.size() != 1) fail_config("expected one model");
    const auto parameters = sources[0]->parameters();
    return {sources[0]->description(), {parameters.begin(), parameters.end()}};
  }
  void run(std::span<StoredModel* const> sources, TensorWriter& out) override {
    for (const StoredTensor& tensor : sources[0]->parameters())
      copy_stored(*sources[0], tensor.name, tensor, out);
  }
  void* query(std::string_view) override { return nullptr; }
};

class NamesTwice final : public Base {
 public:
  static constexpr ComponentInfo kInfo{.id = "names_twice", .summary = "two parameters of one name"};
  using Base::Base;
  TransformedModel describe(std::span<StoredModel* const> sources) override {
    TransformedModel model = Base::describe(sources);
    if (!model.parameters.empty()) model.parameters.push_back(model.parameters[0]);
    return model;
  }
};

class ForgetsTheType final : public Base {
 public:
  static constexpr ComponentInfo kInfo{.id = "forgets_the_type", .summary = "a result without a model"};
  using Base::Base;
  TransformedModel describe(std::span<StoredModel* const> sources) override {
    TransformedModel model = Base::describe(sources);
    model.description.model.erase("type");
    return model;
  }
};

class CountsDescriptions final : public Base {
 public:
  static constexpr ComponentInfo kInfo{.id = "counts_descriptions", .summary = "describe() has a memory"};
  using Base::Base;
  TransformedModel describe(std::span<StoredModel* const> sources) override {
    TransformedModel model = Base::describe(sources);
    model.description.model.set("calls", Value(calls_++), {});
    return model;
  }

 private:
  std::int64_t calls_ = 0;
};

class ForgetsTheLast final : public Base {
 public:
  static constexpr ComponentInfo kInfo{.id = "forgets_the_last", .summary = "the last tensor is not written"};
  using Base::Base;
  void run(std::span<StoredModel* const> sources, TensorWriter& out) override {
    const auto parameters = sources[0]->parameters();
    for (std::size_t i = 0; i + 1 < parameters.size(); ++i)
      copy_stored(*sources[0], parameters[i].name, parameters[i], out);
  }
};

class WritesAnotherType final : public Base {
 public:
  static constexpr ComponentInfo kInfo{.id = "writes_another_type", .summary = "describes f64, writes f32"};
  using Base::Base;
  TransformedModel describe(std::span<StoredModel* const> sources) override {
    TransformedModel model = Base::describe(sources);
    for (StoredTensor& tensor : model.parameters)
      if (tensor.dtype == DType::kF32) tensor.dtype = DType::kF64;
    return model;
  }
};

/// The first f32 tensor's first element, changed by `by`.
class Changes : public Base {
 public:
  using Base::Base;

 protected:
  static void run_with(StoredModel& source, TensorWriter& out, float by) {
    bool changed = false;
    std::vector<std::byte> memory;
    for (const StoredTensor& tensor : source.parameters()) {
      memory.resize(static_cast<std::size_t>(dtype_bytes(tensor.dtype, tensor.shape.elements())));
      const TensorView whole{memory.data(), tensor.shape, tensor.dtype, MemorySpace::kHost};
      if (whole.elements() == 0) continue;
      Shape origin = tensor.shape;
      for (int dim = 0; dim < origin.rank(); ++dim) origin[dim] = 0;
      source.read(tensor.name, origin, whole);
      if (!changed && tensor.dtype == DType::kF32) {
        whole.as<float>()[0] += by;
        changed = true;
      }
      out.write(whole);
    }
  }
};

class CountsRuns final : public Changes {
 public:
  static constexpr ComponentInfo kInfo{.id = "counts_runs", .summary = "a run depends on those before"};
  using Changes::Changes;
  void run(std::span<StoredModel* const> sources, TensorWriter& out) override {
    run_with(*sources[0], out, static_cast<float>(runs_++));
  }

 private:
  int runs_ = 0;
};

class DividesByZero final : public Changes {
 public:
  static constexpr ComponentInfo kInfo{.id = "divides_by_zero", .summary = "not finite"};
  using Changes::Changes;
  void run(std::span<StoredModel* const> sources, TensorWriter& out) override {
    run_with(*sources[0], out, HUGE_VALF);
  }
};

class LeavesAGap final : public Base {
 public:
  static constexpr ComponentInfo kInfo{.id = "leaves_a_gap", .summary = "writes memory that it never filled"};
  using Base::Base;
  void run(std::span<StoredModel* const> sources, TensorWriter& out) override {
    for (const StoredTensor& tensor : sources[0]->parameters()) {
      const auto bytes = static_cast<std::size_t>(dtype_bytes(tensor.dtype, tensor.shape.elements()));
      const std::unique_ptr<std::byte[]> memory(new std::byte[bytes]);
      out.write({memory.get(), tensor.shape, tensor.dtype, MemorySpace::kHost});
    }
  }
};

class EditsItsSource final : public Base {
 public:
  static constexpr ComponentInfo kInfo{.id = "edits_its_source", .summary = "changes a source's options"};
  using Base::Base;
  void run(std::span<StoredModel* const> sources, TensorWriter& out) override {
    const_cast<ModelDescription&>(sources[0]->description()).model.set("tied", Value(false), {});
    Base::run(sources, out);
  }
};

class CountsNoSources final : public Base {
 public:
  static constexpr ComponentInfo kInfo{.id = "counts_no_sources", .summary = "takes what is not there"};
  using Base::Base;
  TransformedModel describe(std::span<StoredModel* const> sources) override {
    if (sources.empty()) throw std::out_of_range("sources[0]");
    return Base::describe(sources);
  }
};

}  // namespace

TENON_PLUGIN(PluginInfo{.id = "broken.transform", .version = "1.0.0", .summary = "wrong transforms"},
             NamesTwice, ForgetsTheType, CountsDescriptions, ForgetsTheLast, WritesAnotherType, CountsRuns,
             DividesByZero, LeavesAGap, EditsItsSource, CountsNoSources)
