# The Debian package of BUILD: what it depends on, what it holds, that it names no place of its making, and that the
# program of it works wherever it is unpacked. Nothing is installed.
include(${CMAKE_CURRENT_LIST_DIR}/steps.cmake)

file(REMOVE_RECURSE ${WORK})
step("packing" ${CPACK} -G DEB --config ${BUILD}/CPackConfig.cmake -B ${WORK})
file(GLOB package ${WORK}/tenon_*.deb)

step("reading its control file" dpkg-deb -I ${package})
foreach(needed Package:.tenon libc6 libstdc\\+\\+6 libgomp1 libdnnl2 libfmt9 libspdlog1 libssl3 libboost-program-options
    "Recommends: g\\+\\+ .*cmake")
  if(NOT step_output MATCHES "${needed}")
    message(FATAL_ERROR "the package does not say '${needed}':\n${step_output}")
  endif()
endforeach()
if(step_output MATCHES "Depends:[^\n]*(tenon|-dev)")
  message(FATAL_ERROR "the package depends on itself or on what only builds need:\n${step_output}")
endif()

step("unpacking" dpkg-deb -x ${package} ${WORK}/x)
foreach(file bin/tenon libexec/tenon/tenon_probe libexec/tenon/tenon_conformance ${LIBDIR}/libtenon_core.so.0
    ${LIBDIR}/tenon/plugins/tenon_device_cpu.so ${LIBDIR}/cmake/Tenon/TenonConfig.cmake ${LIBDIR}/pkgconfig/tenon.pc
    include/tenon/plugin.hpp share/man/man1/tenon-train.1 share/bash-completion/completions/tenon
    share/tenon/templates/common/CMakeLists.txt.in share/tenon/configs/base/lenet5.toml share/doc/tenon/copyright
    share/doc/tenon/docs/configuration.md share/doc/tenon/sdk/examples/README.md
    share/doc/tenon/plugins/optimizer/sgd/README.md)
  if(NOT EXISTS ${WORK}/x/usr/${file})
    message(FATAL_ERROR "the package lacks /usr/${file}.")
  endif()
endforeach()
foreach(folder ${BUILD} ${SOURCE})
  execute_process(COMMAND grep -rlF ${folder} ${WORK}/x OUTPUT_VARIABLE found)
  if(NOT found STREQUAL "")
    message(FATAL_ERROR "files of the package name ${folder}:\n${found}")
  endif()
endforeach()

unset(ENV{TENON_PLUGIN_PATH})
step("asking the doctor" ${WORK}/x/usr/bin/tenon doctor)
if(NOT step_output MATCHES "ok         tenon.device_cpu" OR NOT step_output MATCHES "${WORK}/x/usr/${LIBDIR}/tenon/plugins")
  message(FATAL_ERROR "the unpacked program does not find its plugins:\n${step_output}")
endif()
