# `make install`: the program, libtokamak with headers and CMake package, man page and shell
# completions. Must be included after the targets are defined.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

if(TARGET tokamak)
  set_target_properties(tokamak PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
  install(TARGETS tokamak RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  install(FILES LICENSE README.md DESTINATION ${CMAKE_INSTALL_DOCDIR})

  # The man page and the completions list the options that the program itself prints.
  set(docs ${CMAKE_BINARY_DIR}/packaging)
  set(man_template ${CMAKE_SOURCE_DIR}/packaging/tokamak.1.in)
  add_custom_command(
    OUTPUT ${docs}/tokamak.1 ${docs}/tokamak.bash ${docs}/_tokamak ${docs}/tokamak.fish
    COMMAND python3 ${CMAKE_SOURCE_DIR}/tools/gen_cli_docs.py $<TARGET_FILE:tokamak>
            ${man_template} ${docs}
    DEPENDS tokamak ${man_template} ${CMAKE_SOURCE_DIR}/tools/gen_cli_docs.py VERBATIM)
  add_custom_target(tokamak_docs DEPENDS ${docs}/tokamak.1)
  install(FILES ${docs}/tokamak.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
  install(FILES ${docs}/tokamak.bash RENAME tokamak
          DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
  install(FILES ${docs}/_tokamak DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
  install(FILES ${docs}/tokamak.fish
          DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
endif()

if(TARGET tokamak_local AND TARGET tokamak_server)
  # A shared library of the engine, the server and all of our archives that they need. Archives are
  # linked whole, because several define parts of the public API; only that API is visible. `make
  # install` builds the library; `all` does not.
  file(GENERATE OUTPUT ${CMAKE_BINARY_DIR}/shared.cc CONTENT "// All of it is in the archives.\n")
  add_library(tokamak_shared SHARED EXCLUDE_FROM_ALL ${CMAKE_BINARY_DIR}/shared.cc)
  set(map ${CMAKE_SOURCE_DIR}/packaging/libtokamak.map)
  set_target_properties(tokamak_shared PROPERTIES
    OUTPUT_NAME tokamak EXPORT_NAME tokamak LINKER_LANGUAGE CXX LINK_DEPENDS ${map}
    VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
  get_property(archives GLOBAL PROPERTY TOKAMAK_ARCHIVES)
  list(JOIN archives "," archives)
  set_target_properties(tokamak_shared PROPERTIES
    LINK_LIBRARY_OVERRIDE "WHOLE_ARCHIVE,${archives}")
  target_link_libraries(tokamak_shared PRIVATE tokamak_local tokamak_server)
  # The library stays loaded after dlclose, because the lookup of an image's host may end later.
  target_link_options(tokamak_shared PRIVATE -Wl,--version-script=${map} -Wl,--no-undefined
                      -Wl,-z,nodelete)
  target_compile_features(tokamak_shared INTERFACE cxx_std_20)
  target_include_directories(tokamak_shared INTERFACE
                             $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)

  install(TARGETS tokamak_shared EXPORT tokamak OPTIONAL
          LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(DIRECTORY include/tokamak DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
          FILES_MATCHING PATTERN *.h)
  set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/tokamak)
  install(EXPORT tokamak NAMESPACE tokamak:: FILE tokamak-targets.cmake DESTINATION ${package_dir})
  configure_package_config_file(packaging/tokamak-config.cmake.in
                                ${CMAKE_BINARY_DIR}/tokamak-config.cmake
                                INSTALL_DESTINATION ${package_dir})
  write_basic_package_version_file(${CMAKE_BINARY_DIR}/tokamak-config-version.cmake
                                   COMPATIBILITY SameMinorVersion)
  install(FILES ${CMAKE_BINARY_DIR}/tokamak-config.cmake
                ${CMAKE_BINARY_DIR}/tokamak-config-version.cmake DESTINATION ${package_dir})
endif()

# Installs into the build folder, builds programs against that installation, the examples among
# them, and runs these if the model is present.
if(TOKAMAK_TESTS AND TARGET tokamak AND TARGET tokamak_local AND NOT TOKAMAK_SANITIZE)
  # Finds the model like src/base/paths.cc.
  set(model "$ENV{TOKAMAK_MODEL}")
  if(NOT model)
    set(cache "$ENV{XDG_CACHE_HOME}")
    if(NOT IS_ABSOLUTE "${cache}")
      set(cache "$ENV{HOME}/.cache")
    endif()
    set(model "${cache}/tokamak/models/SmolLM2-135M-Instruct.Q4_1.gguf")
  endif()
  add_test(NAME install_test
    COMMAND ${CMAKE_COMMAND} -DBUILD=${CMAKE_BINARY_DIR} -DSOURCE=${CMAKE_SOURCE_DIR}
            -DMODEL=${model} -P ${CMAKE_SOURCE_DIR}/tests/package/install_test.cmake)
  set_tests_properties(install_test PROPERTIES TIMEOUT 600)
endif()
