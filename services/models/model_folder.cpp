// A safetensors file has no checksums, so `model.toml` holds one over all tensors, and a folder is read whole
// when it is opened. Complex tensors are pairs of reals in the file; its metadata has their type.
#include "models/model_folder.hpp"

#include "store/box.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

namespace tenon::models {
namespace {

constexpr std::size_t kPiece = std::size_t{4} << 20;
constexpr std::int64_t kFormat = 1;
constexpr std::int64_t kMostToml = std::int64_t{16} << 20;
constexpr std::string_view kTypeKey = "tenon.dtype.";

DType logical_type(const SafetensorsReader& file, const SafetensorsEntry& entry) {
  const auto recorded = file.metadata().find(std::string(kTypeKey) + entry.name);
  if (recorded != file.metadata().end()) {
    if (recorded->second == dtype_name(DType::kC64)) return DType::kC64;
    if (recorded->second == dtype_name(DType::kC128)) return DType::kC128;
  }
  if (!entry.dtype)
    fail_run(fmt::format("{}: tensor '{}' is {}, a type that no parameter has", file.label(), entry.name,
                         entry.file_dtype));
  return *entry.dtype;
}

Shape logical_shape(const SafetensorsEntry& entry, DType dtype) {
  std::span<const std::int64_t> extents(entry.shape);
  return Shape(dtype_is_complex(dtype) ? extents.first(extents.size() - 1) : extents);
}

/// A member of model.toml; throws Error(kConfig) where it is missing.
const Value& required(const Config& config, const std::string& path, const char* key) {
  const Value* const value = config.find(key);
  if (value == nullptr) fail_config(fmt::format("{}: '{}' is missing", path, key));
  return *value;
}

}  // namespace

bool is_model_folder(FileSystem& files, const std::string& path) {
  return files.exists(path + "/" + kModelFile);
}

ModelFolder::ModelFolder(FileSystem& files, Registry& registry, Host& host, std::string folder)
    : registry_(registry), host_(host), folder_(std::move(folder)) {
  read_description(files);
  open_weights(files);
  verify();
}

void ModelFolder::read_description(FileSystem& files) {
  const std::string path = folder_ + "/" + kModelFile;
  if (!files.exists(path))
    fail_config(fmt::format("{} is no model folder: it has no {}", folder_, kModelFile));
  const Config config = Config::parse(read_text(files, path, kMostToml), path, {});
  if (const std::int64_t format = required(config, path, "format").integer(); format != kFormat)
    fail_config(fmt::format("{}: format {} is unknown; this version reads format {}", path, format, kFormat));
  digest_ = required(config, path, "weights_hash").text();
  description_.model = required(config, path, "model");
  required(config, path, "model.type").text();
  if (const Value* const data = config.find("data")) {
    for (const Member& member : data->table())
      description_.attributes.push_back({member.key, member.value.integer()});
  }
}

void ModelFolder::open_weights(FileSystem& files) {
  std::vector<std::string> names;
  for (const DirectoryEntry& entry : files.list(folder_))
    if (entry.name.ends_with(".safetensors")) names.push_back(entry.name);
  if (names.empty()) fail_config(fmt::format("{}: there is no *.safetensors beside {}", folder_, kModelFile));
  std::ranges::sort(names);
  for (const std::string& name : names) {
    const std::string path = folder_ + "/" + name;
    files_.emplace_back(files.open(path), path);
  }
  std::vector<std::pair<std::string, std::pair<std::size_t, std::size_t>>> found;
  for (std::size_t f = 0; f < files_.size(); ++f)
    for (std::size_t e = 0; e < files_[f].entries().size(); ++e)
      found.push_back({files_[f].entries()[e].name, {f, e}});
  std::ranges::sort(found);
  for (std::size_t i = 0; i < found.size(); ++i) {
    const auto& [name, place] = found[i];
    const SafetensorsReader& file = files_[place.first];
    if (i > 0 && found[i - 1].first == name)
      fail_config(fmt::format("{}: tensor '{}' is in {} as well", file.label(), name,
                              files_[found[i - 1].second.first].label()));
    const SafetensorsEntry& entry = file.entries()[place.second];
    const DType dtype = logical_type(file, entry);
    parameters_.push_back({name, dtype, logical_shape(entry, dtype)});
    places_.emplace_back(place.first, &entry);
  }
}

void ModelFolder::verify() const {
  StateHasher hasher;
  std::vector<std::byte> piece;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const auto& [file, entry] = places_[i];
    hasher.begin(parameters_[i].name, parameters_[i].dtype, parameters_[i].shape);
    for (std::int64_t at = 0; at < entry->bytes(); at += static_cast<std::int64_t>(piece.size())) {
      piece.resize(static_cast<std::size_t>(std::min<std::int64_t>(kPiece, entry->bytes() - at)));
      files_[file].read(*entry, at, piece);
      hasher.feed(piece);
    }
    hasher.end();
  }
  if (const std::string found = hasher.hex(); found != digest_)
    fail_run(
        fmt::format("{}: the weights are not those that {} was written for: expected weights_hash {}, "
                    "found {}; copy the folder again, or make it again",
                    folder_, kModelFile, digest_, found));
}

void ModelFolder::read(std::string_view tensor, const Shape& offset, TensorView out) {
  const auto found = std::ranges::lower_bound(parameters_, tensor, {}, &StoredTensor::name);
  if (found == parameters_.end() || found->name != tensor)
    fail_run(fmt::format("{} has no tensor '{}'", folder_, tensor));
  const Box wanted{offset, out.shape};
  if (found->dtype != out.dtype || !box_fits(wanted, found->shape))
    fail_run(fmt::format("{}: tensor '{}' is {} {}, which has no part {} {} at {}", folder_, tensor,
                         dtype_name(found->dtype), found->shape.text(), dtype_name(out.dtype),
                         out.shape.text(), offset.text()));
  const auto& place = places_[static_cast<std::size_t>(found - parameters_.begin())];
  const SafetensorsReader& file = files_[place.first];
  Shape origin = found->shape;
  for (int dim = 0; dim < origin.rank(); ++dim) origin[dim] = 0;
  copy_shared(
      out.dtype, {origin, found->shape},
      [&](std::int64_t at, std::span<std::byte> bytes) { file.read(*place.second, at, bytes); }, wanted,
      out.raw());
}

Blueprint& ModelFolder::blueprint() {
  if (blueprint_ == nullptr) blueprint_ = std::make_unique<Blueprint>(description_.model, registry_, host_);
  return *blueprint_;
}

GraphSpec ModelFolder::graph(const DataInfo& data) {
  return blueprint().graph(data, description_.attributes);
}

ModelFolderWriter::ModelFolderWriter(FileSystem& files, std::string folder, TransformedModel model,
                                     MadeBy made_by)
    : files_(files),
      folder_(std::move(folder)),
      partial_(fmt::format("{}.{}.tmp", folder_, ::getpid())),
      model_(std::move(model)),
      made_by_(std::move(made_by)) {
  if (files.exists(folder_))
    fail_config(fmt::format("{} exists, and nothing is written over a model; name another folder", folder_));
  std::vector<SafetensorsEntry> entries;
  SafetensorsMetadata metadata{{"format", "pt"}};
  for (const StoredTensor& tensor : model_.parameters) {
    entries.push_back(safetensors_entry(tensor.name, tensor.dtype, tensor.shape));
    if (dtype_is_complex(tensor.dtype))
      metadata.emplace(std::string(kTypeKey) + tensor.name, dtype_name(tensor.dtype));
  }
  const std::string beginning = safetensors_beginning(entries, metadata);
  files_.make_directories(partial_);
  file_ = files_.create(partial_ + "/model.safetensors");
  file_->append(std::as_bytes(std::span(beginning)));
  begin_next();
}

ModelFolderWriter::~ModelFolderWriter() {
  if (finished_) return;
  try {
    file_.reset();
    remove_tree(files_, partial_);
  } catch (const std::exception&) {  // left for the reader of the error that led here
  }
}

// Tensors without elements are complete at once.
void ModelFolderWriter::begin_next() {
  while (current_ < model_.parameters.size()) {
    const StoredTensor& tensor = model_.parameters[current_];
    hasher_.begin(tensor.name, tensor.dtype, tensor.shape);
    left_ = static_cast<std::int64_t>(dtype_bytes(tensor.dtype, tensor.shape.elements()));
    if (left_ > 0) return;
    hasher_.end();
    ++current_;
  }
}

void ModelFolderWriter::write(TensorView piece) {
  if (piece.bytes() == 0) return;
  if (current_ == model_.parameters.size())
    fail_plugin("a transform writes more tensors than it has described");
  const StoredTensor& tensor = model_.parameters[current_];
  if (piece.dtype != tensor.dtype)
    fail_plugin(fmt::format("a transform writes {} into tensor '{}', which it has described as {}",
                            dtype_name(piece.dtype), tensor.name, dtype_name(tensor.dtype)));
  if (static_cast<std::int64_t>(piece.bytes()) > left_)
    fail_plugin(fmt::format("a transform writes {} bytes more into tensor '{}' than its shape {} has",
                            static_cast<std::int64_t>(piece.bytes()) - left_, tensor.name,
                            tensor.shape.text()));
  file_->append(piece.raw());
  hasher_.feed(piece.raw());
  left_ -= static_cast<std::int64_t>(piece.bytes());
  if (left_ > 0) return;
  hasher_.end();
  ++current_;
  begin_next();
}

void ModelFolderWriter::file(std::string_view name, std::string_view bytes) {
  const std::string folder = partial_ + "/about", path = fmt::format("{}/{}", folder, name);
  if (name.empty() || name[0] == '.' || name.find('/') != std::string_view::npos)
    fail_plugin(fmt::format("a transform writes a file '{}'; expected a name without folder", name));
  if (files_.exists(path)) fail_plugin(fmt::format("a transform writes the file '{}' twice", name));
  files_.make_directories(folder);
  files_.write_text_atomically(path, bytes);
}

std::string ModelFolderWriter::finish() {
  if (current_ < model_.parameters.size())
    fail_plugin(fmt::format("a transform ended with {} bytes of tensor '{}' still to write", left_,
                            model_.parameters[current_].name));
  file_->sync();
  file_->close();
  file_.reset();
  digest_ = hasher_.hex();
  files_.write_text_atomically(partial_ + "/" + kModelFile, description());
  files_.sync_directory(partial_);
  files_.rename(partial_, folder_);
  files_.sync_directory(parent_path(folder_));
  finished_ = true;
  return digest_;
}

std::string ModelFolderWriter::description() const {
  Value root, data, origin;
  root.set("format", Value(kFormat), {});
  root.set("weights_hash", Value(digest_), {});
  for (const DataAttribute& attribute : model_.description.attributes)
    data.set(attribute.name, Value(attribute.value), {});
  for (const auto& [key, text] : made_by_) origin.set(key, Value(text), {});
  root.set("data", std::move(data), {});
  root.set("made_by", std::move(origin), {});
  root.set("model", model_.description.model, {});
  return to_toml(root, false);
}

}  // namespace tenon::models
