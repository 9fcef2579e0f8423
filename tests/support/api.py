"""The one place where tests import what is not public: a module that moves changes a line of this table, and no test.

    from tests.support.api import Threshold

A row is a module and the names that tests take from it; `name=original` renames, `name=` is the module itself.
"""

from importlib import import_module

PLACES = {
    "fedhist.auditing": "all_checks",
    "fedhist.client.config": "FILE_KEYS KEYS NodeConfigKind=Kind NodeSettings POLICY_KEYS read_node_config",
    "fedhist.client.device": "add_noise_share answer answer_population clear_answer",
    "fedhist.client.files.count": "Numbering Tabulation count_module= table_row",
    "fedhist.client.files.database": "Database database_module=",
    "fedhist.client.files.items": "ItemChoice StoredNames chosen_names order_of_texts",
    "fedhist.client.files.matrix_files": "read_matrix",
    "fedhist.client.files.memory": "LIMIT_VARIABLE MemoryLimit=Memory memory_limit unpacked_limit",
    "fedhist.client.files.native_errors": "silenced",
    "fedhist.client.files.parquet_tables": "parquet_tables_module= row_groups",
    "fedhist.client.files.read": "over_items read_node_data",
    "fedhist.client.files.spool": "StoredPopulation",
    "fedhist.client.files.text_tables": "records",
    "fedhist.client.flower": "app_module= client_app=app line_of recall round_handlers_module=",
    "fedhist.client.masked_device": (
        "begin_masked=begin masked_device_module= participant_vector proceed resume"
    ),
    "fedhist.client.memory_file": "MAX_ANSWERS MAX_SESSIONS MemoryFile memory_file_module=",
    "fedhist.client.policy": (
        "PolicyMemory=Memory admit answered begin_policy=begin charge check request_key round_cost"
    ),
    "fedhist.client.populations": "SHARD_NONZEROS SHARD_USERS item_totals populations_module=",
    "fedhist.commands.cli": "COMMANDS cli cli_module=",
    "fedhist.commands.options": "Command MOST_SHOWN OPTIONS OptionGroup=Group option_name=name_of",
    "fedhist.commands.paper": "EXPERIMENTS",
    "fedhist.commands.plan": "print_curve",
    "fedhist.commands.terminal": "prepare_streams",
    "fedhist.display.text": "TIMED counted errors_as_sentences is_formula is_hidden log log_shown visible",
    "fedhist.protocol.circle": "WIDEST nearness signed",
    "fedhist.protocol.clipping": (
        "clipped_entries entry_counts entry_items is_clipped sum_by_item sum_clipped sum_items user_totals"
    ),
    "fedhist.protocol.errors": (
        "BadKey CorruptShares DecodeError HeldByAnother InvalidFile InvalidPlan InvalidPopulation "
        "NotWritten OtherPlugin OutOfBounds Refused TableTooSmall TooFewSurvivors UnexpectedMessage"
    ),
    "fedhist.protocol.events": (
        "Charged DroppedOut EVENTS Event Heard MessageSent MessagesLeftOut Observer PhaseEnded Read "
        "RoundAsked RoundEnded RunEnded Scored StateEntered TO_DEVICE TO_SERVER Viewed ignore read_event"
    ),
    "fedhist.protocol.grid": "Threshold",
    "fedhist.protocol.histograms": "Divisible Floats Integers MAX_USER_TOTAL Words labels_of",
    "fedhist.protocol.item_lists": "ItemOrigin bin_labels edges_of item_list_module= parse_items read_items",
    "fedhist.protocol.items": (
        "Renumbering byte_lengths byte_order distinct_names in_bytes in_pieces item_bytes "
        "name_bytes_module= names_at numbers_in renumbering_module="
    ),
    "fedhist.protocol.keyed": "Keyed KeyedSum coalesce coalesce_dense keyed_module= rising_order",
    "fedhist.protocol.masking.client": (
        "AbortReason Aborted Advertised Checked Confirmed DeviceState Finished MASK_PURPOSE Masked Shared "
        "advance_session=advance masking_client_module= restore_state=restore save self_mask_key start"
    ),
    "fedhist.protocol.masking.cohort": "LeftOut Rejection devices_to_leave_out",
    "fedhist.protocol.masking.crypto": (
        "Identity KEY_BYTES KeyPair LOW_ORDER advertisement_text check_public_key commit derive "
        "draw_bytes parse_directory parse_identity participant_number roster_digest survivors_text verify"
    ),
    "fedhist.protocol.masking.graph": (
        "GraphParameters MAX_DEVICES MaskingTerms Positions TERMS_BYTES _parameters all_neighbours "
        "graph_module= parameters_for ring_of share_of"
    ),
    "fedhist.protocol.masking.masked_vector": "terms_of to_total vector_length",
    "fedhist.protocol.masking.recovery": "MaskedSum Recovery decoded searched",
    "fedhist.protocol.masking.server": "CollectingAdvertisements",
    "fedhist.protocol.masking.shamir": (
        "BOX_BYTES PRIME SHARE_BYTES check_share correct lagrange_at_zero reconstruct seal_all "
        "split_secret=split"
    ),
    "fedhist.protocol.masking.vectors": (
        "MaskAdder read_residues residue_bytes to_integers to_residues width_for zeros"
    ),
    "fedhist.protocol.masking.wire": (
        "HEADER_BYTES MaskingKind=Kind MaskingStage ShareKind VERSION wire_module="
    ),
    "fedhist.protocol.measurements": "MEASUREMENTS",
    "fedhist.protocol.measurements.base": "Bound Column ItemBounds NOTHING Round Salt Summed Total at_most",
    "fedhist.protocol.measurements.key_totals": "SHARE_BITS expected_counts_module= read_sums sums_by_key",
    "fedhist.protocol.measurements.keys": "KeptItems KeySums keyed_part",
    "fedhist.protocol.measurements.noisy_tail": (
        "NoisyTail NoisyTailMeasurement running_sum_root toeplitz_sensitivity"
    ),
    "fedhist.protocol.measurements.sums": "ClippedItems ClippedSum",
    "fedhist.protocol.measurements.tails": (
        "ItemTailMeasurement NormTailsMeasurement Tail TailMeasurement norm_pairs tail_above=above "
        "tail_vector"
    ),
    "fedhist.protocol.plan.fields": (
        "FIELDS Field MECHANISMS PlanFields PlanSettings RELEASE_NAMES SELECTOR_NAMES TABLE_TRUST"
    ),
    "fedhist.protocol.plan.plan": "geometric_candidates",
    "fedhist.protocol.plan.round_costs": "choice_cost",
    "fedhist.protocol.plan.rules": "MAX_ITEMS_ALONE MAX_USERS usual_delta",
    "fedhist.protocol.plan.terms": (
        "COVERAGE_SHARE Closed Discovery MAX_SHARE MIN_PARTICIPANTS MOST_KEYS Masks decoding_delta "
        "fit_noise growth_of_mean is_tested masking_graph most_of_table table_notes table_room "
        "table_shape terms_module="
    ),
    "fedhist.protocol.plan.window": "Window window_in",
    "fedhist.protocol.plugins": (
        "blamed files_for load_files_once plugins_module= registered restore_plugins=restore"
    ),
    "fedhist.protocol.privacy.bars": (
        "OpenNoise OpenNoiseKind bars_for epsilon_beside looks truncated_laplace user_weights"
    ),
    "fedhist.protocol.privacy.calibration": (
        "check_delta check_epsilon classic_multiplier gaussian_delta gaussian_epsilon noise_multiplier"
    ),
    "fedhist.protocol.privacy.composition": "basic_total epsilon_at tight_total",
    "fedhist.protocol.privacy.ledger": (
        "Alternative AlternativesLoss ApproximateLoss BoundedRangeLoss GaussianLoss PrivacyLoss PureLoss "
        "concentrated_module= epsilon_of pure_rho rho_within spending_of"
    ),
    "fedhist.protocol.privacy.neighbours": (
        "COUNTED Norm Sensitivity WEIGHT_BITS clipped_sum_l1 clipped_sum_l2 tail_count tail_weight"
    ),
    "fedhist.protocol.privacy.noise": (
        "LARGEST_GAUSSIAN_VARIANCE LARGEST_LAPLACE_SCALE Noise bernoulli_exp choice_module= "
        "discrete_gaussian discrete_laplace exponential_mechanism exponential_probabilities "
        "gaussian_noise gaussian_variance laplace_noise laplace_scale mechanisms_module= noise_module= "
        "uniform_below uniform_from_one"
    ),
    "fedhist.protocol.privacy.randomness": "KeyedSource SECRET_BYTES Source new_secret",
    "fedhist.protocol.privacy.shares": "Share gaussian_share laplace_share negative_binomial",
    "fedhist.protocol.rounds": "Contribution Labels NOTHING_SETTLED Request Settled",
    "fedhist.protocol.sketch": (
        "HASHES MAX_COUNT MAX_FAILURE MAX_INSERTIONS MAX_TABLE_LENGTH SALT_BYTES TableNotDecoded "
        "TableShape _block_logs _exact_term _partitions decode_table encode_table failure_bound"
    ),
    "fedhist.protocol.validation": "checked user_blocks",
    "fedhist.protocol.wire.envelope": (
        "Envelope MASKED_STAGES MASKING RECORD Refusal Status decode encode items_digest new_run_name"
    ),
    "fedhist.protocol.wire.keyed_codec": "MAX_LABEL_BYTES decode_keyed encode_keyed label_bytes",
    "fedhist.server.advice": "release_advice",
    "fedhist.server.collection": "Collector Fault LabelTable Reply RoundReport matched numbered",
    "fedhist.server.coordinator": "Asking Begin Planned Released advance run_rounds",
    "fedhist.server.discovery": "_look discovery_charges found_items",
    "fedhist.server.disk": "held_off new_file new_folder",
    "fedhist.server.estimates.empirical_bayes": "estimates_and_limits limits_above_bar",
    "fedhist.server.estimates.limits": "above_bar limits_above=above",
    "fedhist.server.estimates.noise_law": "NoiseLaw law_above_bar law_of_noise law_of_shares",
    "fedhist.server.flower": (
        "AGAIN_KEY FOLDER_KEY FOR_NODES GridSettings GridTransport grid_messages_module= read_settings "
        "run_schedule run_settings server_app=app server_app_module="
    ),
    "fedhist.server.folder": (
        "RecordedRun check_room default_folder folder_module= recorded_run write_results"
    ),
    "fedhist.server.ledger.file": "OpenRun RunRecord budget_file_module=",
    "fedhist.server.ledger.runs": "what_fits",
    "fedhist.server.masked": "masked_sum",
    "fedhist.server.releases": "RULES rule_for",
    "fedhist.server.releases.central_noise": "CentralNoise release_noise",
    "fedhist.server.releases.debiased_items": (
        "clipped_mean clipped_mean_slope debias_poisson debiased_standard_error inverse_clipped_mean "
        "item_bounds"
    ),
    "fedhist.server.releases.keys_above_bar": "KeysAboveBar by_bytes",
    "fedhist.server.report": "cohort_notes",
    "fedhist.server.schedule": "MAX_WINDOWS even_split only_operator schedule_module= windows_in",
    "fedhist.server.selection": "SELECTORS fitting selector_for",
    "fedhist.server.selection.contract": (
        "ANY_NORM Reads ScoringSelector Selection Selector WeightedChoice best_candidate "
        "exponential_charge in_weights nearness_scores reading_as"
    ),
    "fedhist.server.selection.crossing": "target_weight",
    "fedhist.server.selection.exponential_v": "error_bound score_range",
    "fedhist.server.selection.fixed": "Fixed",
    "fedhist.server.selection.oracle": "expected_loss",
    "fedhist.server.selection.quantile": "target_rank",
    "fedhist.server.selection.weighted_norms": "WeightedNorms score_sensitivity",
    "fedhist.server.selection.weighted_quantile": "WeightedQuantile",
    "fedhist.server.steps": (
        "check_runnable length_tells measurements_of planned_charges read_statistic release_request "
        "select_request steps_of"
    ),
    "fedhist.server.totals": "default_choice planned total_words",
    "fedhist.server.trace": "MESSAGES_KEPT Recorder TRACE_FILE read_trace trace_in trace_module= write_trace",
    "fedhist.server.words": "charged_ahead round_words",
    "fedhist.simulations.audit.bounds": "bounds_module=",
    "fedhist.simulations.audit.checks": "Effort Finding LEVEL audit_checks_module= run_audit",
    "fedhist.simulations.audit.methods": "checks_of",
    "fedhist.simulations.audit.neighbours": "Replay crafted",
    "fedhist.simulations.clipped_sums": "Binning MAX_POINTS barred distance measure reaching",
    "fedhist.simulations.datasets": "SIZED",
    "fedhist.simulations.datasets.guessed": "GuessedPopulation",
    "fedhist.simulations.datasets.loading": "Wanted load",
    "fedhist.simulations.datasets.mapped_files": "write_mapped",
    "fedhist.simulations.datasets.paper_sets": (
        "NumberedLabels PaperPopulation RatesPopulation ZipfPopulation"
    ),
    "fedhist.simulations.datasets.registry": "DATASETS make_population",
    "fedhist.simulations.datasets.synthetic": "item_probabilities materialise synthetic_module=",
    "fedhist.simulations.deployment": (
        "DEMO_ITEMS=ITEMS Deployment free_ports open_deployment write_app write_example"
    ),
    "fedhist.simulations.engines.contract": "ENGINES EngineType=Engine engine_contract_module= engine_named",
    "fedhist.simulations.engines.flower": (
        "FlowerSimulation _mapped node_app read_identities read_part write_secrets"
    ),
    "fedhist.simulations.engines.in_process": (
        "InProcess exact_total in_process_module= message_bytes open_in_process"
    ),
    "fedhist.simulations.engines.masked": (
        "AgreedOnce LocalDevices identities masked_module= masked_round numbered_identities parts_of "
        "run_cohort unmasked_total"
    ),
    "fedhist.simulations.engines.passes": "Answers ItemTotals split_passes=split",
    "fedhist.simulations.engines.quiet": "ENVIRONMENT LOOPBACK quieten",
    "fedhist.simulations.engines.ray": (
        "RayCrew RayTransport _Sums _Work add_sums check_address init_args on_loopback ray_engine_module= "
        "sum_part"
    ),
    "fedhist.simulations.engines.synthetic_nodes": "users_of",
    "fedhist.simulations.engines.workers": "ForkedCrew in_processes",
    "fedhist.simulations.evaluate": "simulation_document write_simulation",
    "fedhist.simulations.experiments.choices": "Counting",
    "fedhist.simulations.experiments.comparison": "Combinations Grid combinations names_of rows_of",
    "fedhist.simulations.experiments.running": (
        "Experiment Results TrialGroup=Group run_experiment trial_file"
    ),
    "fedhist.simulations.experiments.tables": "Row Summary summarise write_csv",
    "fedhist.simulations.experiments.trials": (
        "Cell FILE PaperPlan SYNTHETIC Trials UserSet digest_of draw_users exact_threshold trial_seed"
    ),
    "fedhist.simulations.faults": "FaultAssignment FaultKind faults_of",
    "fedhist.simulations.given_users": "GivenUsers",
    "fedhist.simulations.paper.baselines": (
        "minimiser minimiser_sensitivity paper_bars sharp_error sharp_range"
    ),
    "fedhist.simulations.paper.beyond": "beyond_module= result_of",
    "fedhist.simulations.paper.drawings": (
        "draw_beyond draw_bound draw_bounded draw_debias draw_numbers draw_sparsity"
    ),
    "fedhist.simulations.paper.figures": "paper_figures=",
    "fedhist.simulations.paper.sentiment140": "read_sentiment140 write_matrix",
    "fedhist.simulations.paper.setup": (
        "Claim Setup Verdict judge judge_mean number_row read_file rounding_ends"
    ),
    "fedhist.simulations.paper.tables": "paper_tables=",
    "fedhist.simulations.population_checks": "check_not_empty",
    "fedhist.simulations.predict": "Outlook Predictor curve row_of",
    "fedhist.simulations.report.charts": (
        "Bar BarChart Chart Line LineChart Rule axis_over=axis draw_chart=figure number read_charts "
        "write_charts"
    ),
    "fedhist.simulations.report.comparison": "answers_of comparison_charts comparison_table cost_words",
    "fedhist.simulations.report.page": "SERIES text",
    "fedhist.simulations.report.plot": (
        "comparison_figure draw_figure=draw painted plot_module= save_drawing=save write_both"
    ),
    "fedhist.simulations.report.run": "RunData read_run run_charts run_of",
    "fedhist.simulations.report.run_page": "headline run_page",
    "fedhist.simulations.report.timeline": "TraceLine in_words lines_of timeline",
    "fedhist.simulations.workbench.arguments": "Question RunSettings",
    "fedhist.simulations.workbench.carrying_out": "Asked carry_out carrying_out_module=",
    "fedhist.simulations.workbench.compare": "grid_of",
    "fedhist.simulations.workbench.reporting": "write_page",
    "fedhist.simulations.workbench.spelling": "in_python",
    "fedhist.simulations.workbench.watching": "Watcher",
    "fedhist.testing.contract": (
        "WatchedSource by_label histograms_of labels_for require some_rows total_of variant"
    ),
    "fedhist.testing.measurements": "AskedMeasurement=Asked usual_givens",
    "fedhist.testing.releases": "Ruled",
    "fedhist.testing.selectors": "Chooser choose",
}
_HOME_OF = {
    name.partition("=")[0]: (home, name.partition("=")[2] or ("" if name.endswith("=") else name))
    for home, names in PLACES.items()
    for name in names.split()
}


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        raise AttributeError(f"tests.support.api has no {name!r}: add it to the table")
    home, original = _HOME_OF[name]
    module = import_module(home)
    return getattr(module, original) if original else module


def __dir__() -> list[str]:
    return sorted(_HOME_OF)
