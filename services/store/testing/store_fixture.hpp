// A small model that checkpoint tests save from any number of ranks and compare bit by bit.
#pragma once

#include <tenon/checkpoint.hpp>

#include "store/testing/memory_files.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <map>

namespace tenon::testing {

/// Whole tensors by name; the values differ per step, so that a mix of two steps cannot go unseen.
class TinyModel {
 public:
  explicit TinyModel(std::int64_t step) {
    add("bias", DType::kF32, Shape{5}, step);
    add("gate", DType::kC64, Shape{2, 3}, step);
    add("scale", DType::kBF16, Shape{}, step);
    add("table", DType::kF32, Shape{11, 3}, step);
    add("weight", DType::kF64, Shape{6, 4}, step);
  }

  void add(const std::string& name, DType dtype, const Shape& shape, std::int64_t step) {
    std::vector<std::byte> bytes(dtype_bytes(dtype, shape.elements()));
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      bytes[i] = static_cast<std::byte>(i * 31 + static_cast<std::size_t>(step) * 7 + name.size());
    }
    specs_.push_back({name, dtype, shape});
    bytes_[name] = std::move(bytes);
  }

  std::vector<TensorSpec> specs() const { return specs_; }
  std::vector<std::byte>& bytes(const std::string& name) { return bytes_.at(name); }
  TensorView view(const std::string& name) {
    for (const TensorSpec& spec : specs_) {
      if (spec.name == name) return {bytes_.at(name).data(), spec.shape, spec.dtype};
    }
    return {};
  }

  /// Parts of rank `rank` of `world`: tensors of two or more rows are split over their rows, others go to the
  /// last rank.
  std::vector<SaveItem> items(int rank, int world) {
    std::vector<SaveItem> result;
    for (const TensorSpec& spec : specs_) {
      Shape offset = spec.shape;
      for (int d = 0; d < offset.rank(); ++d) offset[d] = 0;
      if (spec.shape.rank() == 0 || spec.shape[0] < world) {
        if (rank == world - 1) result.push_back({spec.name, view(spec.name), spec.shape, offset});
        continue;
      }
      const std::int64_t begin = spec.shape[0] * rank / world;
      const std::int64_t end = spec.shape[0] * (rank + 1) / world;
      offset[0] = begin;
      result.push_back({spec.name, view(spec.name).rows(begin, end), spec.shape, offset});
    }
    return result;
  }

  bool equals(CheckpointReader& reader) {
    reader.check_model(specs_);
    for (const TensorSpec& spec : specs_) {
      std::vector<std::byte> read(bytes_.at(spec.name).size(), std::byte{0xee});
      reader.read(spec.name, {read.data(), spec.shape, spec.dtype});
      if (read != bytes_.at(spec.name)) return false;
    }
    return true;
  }

 private:
  std::vector<TensorSpec> specs_;
  std::map<std::string, std::vector<std::byte>> bytes_;
};

/// Both stages of a save by `world` ranks, one after another on this thread.
inline SaveResult save_as_world(CheckpointStore& store, TinyModel& model, const SaveRequest& like,
                                int world) {
  std::vector<std::string> reports;
  for (int rank = 0; rank < world; ++rank) {
    const std::vector<SaveItem> items = model.items(rank, world);
    const MetaBlock meta[] = {{"reader", "position " + std::to_string(like.step)},
                              {"rng.rank" + std::to_string(rank), std::string("\0\xff\x01", 3)}};
    SaveRequest request = like;
    request.items = items;
    request.meta = meta;
    reports.push_back(store.write_part(request, rank, world));
  }
  return store.commit(like.step, reports);
}

inline SaveResult save_step(CheckpointStore& store, std::int64_t step, int world) {
  TinyModel model(step);
  SaveRequest request;
  request.step = step;
  return save_as_world(store, model, request, world);
}

/// The names in a checkpoint folder.
inline std::vector<std::string> folder_names(FileSystem& files, const std::string& folder) {
  std::vector<std::string> names;
  if (!files.exists(folder)) return names;
  for (const DirectoryEntry& entry : files.list(folder)) names.push_back(entry.name);
  return names;
}

inline constexpr char kFolder[] = "/run/checkpoints";

/// Returns the message of the Error that `action` throws.
template <typename F>
std::string message_of(F&& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

/// A store in memory.
class StoreFixture : public ::testing::Test {
 protected:
  MemoryFiles files_;
  CheckpointStore store_{files_, kFolder, {}};

  SaveResult save_items(std::int64_t step, std::int64_t base, std::span<const SaveItem> items) {
    SaveRequest request;
    request.step = step;
    request.base = base;
    request.items = items;
    SoloExchange solo;
    return store_.save(request, 0, 1, solo);
  }
};

}  // namespace tenon::testing
