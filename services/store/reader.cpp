// Reading tensors of a generation, through the chain of bases when it is an increment: the newest generation
// that holds all of the wanted elements in slices, then everything newer on top of it.
#include <tenon/checkpoint.hpp>

#include "store/generation.hpp"

#include <fmt/format.h>

#include <algorithm>

TENON_ABI_BEGIN

using namespace checkpoint;

struct CheckpointReader::State {
  std::vector<std::unique_ptr<Generation>> chain;  // newest first
  std::vector<TensorSpec> tensors;
  std::vector<MetaBlock> meta;
  std::map<std::string, PartDecoder> decoders;

  const TensorSpec& spec(std::string_view name) const;
  void read_box(const TensorSpec& spec, const Box& wanted, std::span<std::byte> out);
};

namespace {

void check_view(const TensorSpec& spec, const TensorView& out) {
  if (out.dtype != spec.dtype) {
    fail_run(fmt::format("tensor '{}' is {} in the checkpoint, {} was asked for", spec.name,
                         dtype_name(spec.dtype), dtype_name(out.dtype)));
  }
  if (out.space != MemorySpace::kHost)
    fail_run("tensor '" + spec.name + "' can only be read into host memory");
  if (out.elements() > 0 && out.data == nullptr)
    fail_run("no memory was given for tensor '" + spec.name + "'");
}

std::string describe(const TensorSpec& spec) {
  return fmt::format("{} {}", dtype_name(spec.dtype), spec.shape.text());
}

}  // namespace

const TensorSpec& CheckpointReader::State::spec(std::string_view name) const {
  const auto found = std::ranges::lower_bound(tensors, name, {}, &TensorSpec::name);
  if (found == tensors.end() || found->name != name) {
    fail_run(fmt::format("{} has no tensor '{}' among its {}", chain.front()->path(), name, tensors.size()));
  }
  return *found;
}

void CheckpointReader::State::read_box(const TensorSpec& spec, const Box& wanted, std::span<std::byte> out) {
  const std::int64_t elements = wanted.extents.elements();
  if (elements == 0) return;
  const auto record_in = [&](const Generation& generation) -> const TensorRecord* {
    const auto found = generation.manifest().tensors.find(spec.name);
    return found == generation.manifest().tensors.end() ? nullptr : &found->second;
  };
  // Older generations than one whose slices hold everything wanted cannot show through.
  std::size_t oldest = 0;
  for (; oldest + 1 < chain.size(); ++oldest) {
    std::int64_t held = 0;
    if (const TensorRecord* record = record_in(*chain[oldest])) {
      for (const PartRecord& part : record->parts) {
        if (part.rows_key.empty()) held += shared_elements(part.box, wanted);
      }
    }
    if (held == elements) break;
  }
  for (std::size_t i = oldest + 1; i-- > 0;) {
    std::int64_t copied = 0;
    if (const TensorRecord* record = record_in(*chain[i])) {
      for (const PartRecord& part : record->parts) {
        copied += chain[i]->copy_part(spec.name, *record, part, wanted, out, decoders);
      }
    }
    if (i == oldest && copied != elements) {
      fail_run(fmt::format("{}: tensor '{}' has {} of the {} elements at {}", chain[i]->path(), spec.name,
                           copied, elements, wanted.offset.text()));
    }
  }
}

CheckpointReader::CheckpointReader(std::unique_ptr<State> state) : state_(std::move(state)) {}
CheckpointReader::~CheckpointReader() = default;
CheckpointReader::CheckpointReader(CheckpointReader&&) noexcept = default;
CheckpointReader& CheckpointReader::operator=(CheckpointReader&&) noexcept = default;

std::int64_t CheckpointReader::step() const {
  return state_->chain.front()->manifest().step;
}
std::int64_t CheckpointReader::timeline() const {
  return state_->chain.front()->manifest().timeline;
}
std::int64_t CheckpointReader::base() const {
  return state_->chain.front()->manifest().base;
}
bool CheckpointReader::consistent() const {
  return state_->chain.front()->manifest().consistent;
}
bool CheckpointReader::encoded() const {
  for (const auto& generation : state_->chain) {
    for (const auto& [name, tensor] : generation->manifest().tensors) {
      if (std::ranges::any_of(tensor.parts,
                              [](const PartRecord& part) { return part.encoding != kPlainEncoding; }))
        return true;
    }
  }
  return false;
}
int CheckpointReader::world_size() const {
  return state_->chain.front()->manifest().world_size;
}
std::span<const TensorSpec> CheckpointReader::tensors() const {
  return state_->tensors;
}
std::span<const MetaBlock> CheckpointReader::meta() const {
  return state_->meta;
}

const TensorSpec* CheckpointReader::find(std::string_view name) const {
  const auto found = std::ranges::lower_bound(state_->tensors, name, {}, &TensorSpec::name);
  return found == state_->tensors.end() || found->name != name ? nullptr : &*found;
}

const std::string* CheckpointReader::meta(std::string_view name) const {
  const auto found = std::ranges::find(state_->meta, name, &MetaBlock::name);
  return found == state_->meta.end() ? nullptr : &found->value;
}

void CheckpointReader::check_model(std::span<const TensorSpec> model) const {
  std::vector<TensorSpec> wanted(model.begin(), model.end());
  std::ranges::sort(wanted, {}, &TensorSpec::name);
  const auto fail = [&](const std::string& what) {
    fail_run(fmt::format("{} is of another model: {}", state_->chain.front()->path(), what));
  };
  auto mine = wanted.begin();
  auto theirs = state_->tensors.begin();
  while (mine != wanted.end() || theirs != state_->tensors.end()) {
    if (theirs == state_->tensors.end() || (mine != wanted.end() && mine->name < theirs->name)) {
      fail(fmt::format("it lacks tensor '{}' ({})", mine->name, describe(*mine)));
    }
    if (mine == wanted.end() || theirs->name < mine->name) {
      fail(fmt::format("it has tensor '{}' ({}), which the model does not", theirs->name, describe(*theirs)));
    }
    if (mine->dtype != theirs->dtype || !(mine->shape == theirs->shape)) {
      fail(fmt::format("tensor '{}' is {} there and {} in the model", mine->name, describe(*theirs),
                       describe(*mine)));
    }
    ++mine;
    ++theirs;
  }
}

void CheckpointReader::read(std::string_view name, TensorView out) {
  const TensorSpec& spec = state_->spec(name);
  if (!(out.shape == spec.shape)) {
    fail_run(fmt::format("tensor '{}' is {} in the checkpoint, {} was asked for", name, spec.shape.text(),
                         out.shape.text()));
  }
  Shape zero = spec.shape;
  for (int d = 0; d < zero.rank(); ++d) zero[d] = 0;
  read_slice(name, zero, out);
}

void CheckpointReader::read_slice(std::string_view name, const Shape& offset, TensorView out) {
  const TensorSpec& spec = state_->spec(name);
  check_view(spec, out);
  const Box wanted{offset, out.shape};
  if (!box_fits(wanted, spec.shape)) {
    fail_run(fmt::format("slice {} at {} is outside tensor '{}' {}", out.shape.text(), offset.text(), name,
                         spec.shape.text()));
  }
  if (out.elements() > 0) state_->read_box(spec, wanted, out.raw());
}

void CheckpointReader::read_rows(std::string_view name, std::span<const std::int64_t> rows, TensorView out) {
  const TensorSpec& spec = state_->spec(name);
  check_view(spec, out);
  Shape expected = spec.shape;
  if (expected.rank() == 0) fail_run(fmt::format("tensor '{}' is a scalar and has no rows", name));
  expected[0] = static_cast<std::int64_t>(rows.size());
  if (!(out.shape == expected)) {
    fail_run(fmt::format("{} rows of tensor '{}' {} need {}, {} was given", rows.size(), name,
                         spec.shape.text(), expected.text(), out.shape.text()));
  }
  Box wanted{spec.shape, expected};
  for (int d = 0; d < expected.rank(); ++d) wanted.offset[d] = 0;
  for (std::size_t begin = 0, end = 0; begin < rows.size(); begin = end) {
    if (rows[begin] < 0 || rows[begin] >= spec.shape[0]) {
      fail_run(fmt::format("row {} is outside tensor '{}' {}", rows[begin], name, spec.shape.text()));
    }
    end = begin + 1;
    while (end < rows.size() && rows[end] == rows[end - 1] + 1 && rows[end] < spec.shape[0]) ++end;
    wanted.offset[0] = rows[begin];
    wanted.extents[0] = static_cast<std::int64_t>(end - begin);
    const TensorView run = out.rows(static_cast<std::int64_t>(begin), static_cast<std::int64_t>(end));
    if (run.elements() > 0) state_->read_box(spec, wanted, run.raw());
  }
}

void CheckpointReader::add_decoder(const std::string& encoding, PartDecoder decoder) {
  state_->decoders[encoding] = std::move(decoder);
}

CheckpointReader CheckpointStore::open(std::int64_t step) const {
  auto state = std::make_unique<CheckpointReader::State>();
  std::map<std::string, TensorSpec, std::less<>> tensors;
  std::uint32_t expected_crc = 0;
  for (std::int64_t next = step; next >= 0;) {
    auto generation =
        std::make_unique<Generation>(files_, folder_ + "/" + folder_name(FolderKind::kComplete, next));
    const Manifest& manifest = generation->manifest();
    if (manifest.step != next) {
      fail_run(fmt::format("{}: its manifest is of step {}", generation->path(), manifest.step));
    }
    if (!state->chain.empty() && generation->manifest_crc() != expected_crc) {
      fail_run(fmt::format(
          "{} is not the base that {} was built on: manifest CRC-32C {:08x}, expected {:08x}",
          generation->path(), state->chain.back()->path(), generation->manifest_crc(), expected_crc));
    }
    for (const auto& [name, record] : manifest.tensors) {
      const TensorSpec& known =
          tensors.try_emplace(name, TensorSpec{name, record.dtype, record.shape}).first->second;
      if (known.dtype != record.dtype || !(known.shape == record.shape)) {
        fail_run(fmt::format("{}: tensor '{}' is {} {}, an increment on it has {}", generation->path(), name,
                             dtype_name(record.dtype), record.shape.text(), describe(known)));
      }
    }
    next = manifest.base;
    expected_crc = manifest.base_crc;
    state->chain.push_back(std::move(generation));
  }
  if (state->chain.empty()) fail_run(fmt::format("{}: there is no generation of step {}", folder_, step));
  for (auto& [name, spec] : tensors) state->tensors.push_back(std::move(spec));
  for (const auto& [name, value] : state->chain.front()->manifest().meta)
    state->meta.push_back({name, value});
  return CheckpointReader(std::move(state));
}

TENON_ABI_END
