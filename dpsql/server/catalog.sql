-- What PostgreSQL's catalogue functions say of the declared tables. Names are those of PostgreSQL, in a schema of their own.
-- An argument stands in the body as it was written: so the tables that are looked into here have columns that no other has.
CREATE MACRO f.version() AS 'PostgreSQL 15.0 (dpsql)';
CREATE MACRO f.current_database() AS getvariable('dataset');
CREATE MACRO f.current_catalog() AS getvariable('dataset');
CREATE MACRO f.current_schema() AS 'public';
CREATE MACRO f.current_schemas(implicit) AS CASE WHEN implicit THEN ['pg_catalog', 'public'] ELSE ['public'] END;
CREATE MACRO f.current_user() AS getvariable('login');
CREATE MACRO f.session_user() AS getvariable('login');
CREATE MACRO f.pg_backend_pid() AS getvariable('pid');
CREATE MACRO f.pg_get_userbyid(id) AS CASE id WHEN 10 THEN 'dpsql' ELSE getvariable('login') END;
CREATE MACRO f.pg_table_is_visible(id) AS id IN (SELECT _oid FROM pg._relations WHERE _namespace IN (11, 2200));
CREATE MACRO f.pg_type_is_visible(id) AS true;
CREATE MACRO f.pg_function_is_visible(id) AS true;
CREATE MACRO f.pg_collation_is_visible(id) AS true;
CREATE MACRO f.pg_conversion_is_visible(id) AS true;
CREATE MACRO f.pg_char_to_encoding(name) AS 6;
CREATE MACRO f.pg_ts_config_is_visible(id) AS true;
CREATE MACRO f.pg_opclass_is_visible(id) AS true;
CREATE MACRO f.pg_operator_is_visible(id) AS true;
CREATE MACRO f.has_table_privilege(a, b) AS upper(b) LIKE '%SELECT%', (a, b, c) AS upper(c) LIKE '%SELECT%';
CREATE MACRO f.has_any_column_privilege(a, b) AS upper(b) LIKE '%SELECT%', (a, b, c) AS upper(c) LIKE '%SELECT%';
CREATE MACRO f.has_column_privilege(a, b, c) AS upper(c) LIKE '%SELECT%', (a, b, c, d) AS upper(d) LIKE '%SELECT%';
CREATE MACRO f.has_schema_privilege(a, b) AS upper(b) = 'USAGE', (a, b, c) AS upper(c) = 'USAGE';
CREATE MACRO f.has_database_privilege(a, b) AS upper(b) = 'CONNECT', (a, b, c) AS upper(c) = 'CONNECT';
CREATE MACRO f.has_function_privilege(a, b) AS true, (a, b, c) AS true;
CREATE MACRO f.has_sequence_privilege(a, b) AS false, (a, b, c) AS false;
CREATE MACRO f.has_tablespace_privilege(a, b) AS false, (a, b, c) AS false;
CREATE MACRO f.pg_has_role(a, b) AS true, (a, b, c) AS true;
CREATE MACRO f.row_security_active(a) AS false;
CREATE MACRO f.format_type(id, modifier) AS CASE
    WHEN id = 1700 AND modifier > 4
        THEN 'numeric(' || ((modifier - 4) >> 16) || ',' || ((modifier - 4) & 65535) || ')'
    ELSE coalesce((SELECT max(_spoken) FROM pg._type_names WHERE _oid = id), CASE WHEN id IS NOT NULL THEN '???' END) END;
CREATE MACRO f.obj_description(id) AS (SELECT max(_text) FROM pg._comments WHERE _oid = id AND _number = 0),
    (id, catalog) AS (SELECT max(_text) FROM pg._comments WHERE _oid = id AND _number = 0);
CREATE MACRO f.col_description(id, number) AS
    (SELECT max(_text) FROM pg._comments WHERE _oid = id AND _number = number);
CREATE MACRO f.shobj_description(id, catalog) AS CAST(NULL AS VARCHAR);
CREATE MACRO f.pg_get_expr(a, b) AS CAST(NULL AS VARCHAR), (a, b, c) AS CAST(NULL AS VARCHAR);
CREATE MACRO f.pg_get_constraintdef(id) AS (SELECT max(_definition) FROM pg._definitions WHERE _oid = id),
    (id, pretty) AS (SELECT max(_definition) FROM pg._definitions WHERE _oid = id);
CREATE MACRO f.pg_get_indexdef(id) AS (SELECT max(_definition) FROM pg._definitions WHERE _oid = id),
    (id, number, pretty) AS (SELECT max(CASE WHEN number = 0 THEN _definition ELSE _attribute END)
        FROM pg._definitions WHERE _oid = id);
CREATE MACRO f.pg_get_viewdef(id) AS CAST(NULL AS VARCHAR), (id, pretty) AS CAST(NULL AS VARCHAR);
CREATE MACRO f.pg_get_functiondef(id) AS CAST(NULL AS VARCHAR);
CREATE MACRO f.pg_get_function_result(id) AS CAST(NULL AS VARCHAR);
CREATE MACRO f.pg_get_function_arguments(id) AS CAST(NULL AS VARCHAR);
CREATE MACRO f.pg_get_function_identity_arguments(id) AS CAST(NULL AS VARCHAR);
CREATE MACRO f.pg_get_triggerdef(id) AS CAST(NULL AS VARCHAR), (id, pretty) AS CAST(NULL AS VARCHAR);
CREATE MACRO f.pg_get_ruledef(id) AS CAST(NULL AS VARCHAR), (id, pretty) AS CAST(NULL AS VARCHAR);
CREATE MACRO f.pg_get_partkeydef(id) AS CAST(NULL AS VARCHAR);
CREATE MACRO f.pg_get_statisticsobjdef_columns(id) AS CAST(NULL AS VARCHAR);
CREATE MACRO f.pg_get_serial_sequence(a, b) AS CAST(NULL AS VARCHAR);
CREATE MACRO f.pg_tablespace_location(id) AS '';
CREATE MACRO f.pg_encoding_to_char(id) AS 'UTF8';
CREATE MACRO f.pg_client_encoding() AS 'UTF8';
CREATE MACRO f.pg_relation_size(id) AS CAST(0 AS BIGINT), (id, fork) AS CAST(0 AS BIGINT);
CREATE MACRO f.pg_total_relation_size(id) AS CAST(0 AS BIGINT);
CREATE MACRO f.pg_table_size(id) AS CAST(0 AS BIGINT);
CREATE MACRO f.pg_indexes_size(id) AS CAST(0 AS BIGINT);
CREATE MACRO f.pg_database_size(id) AS CAST(0 AS BIGINT);
CREATE MACRO f.pg_tablespace_size(id) AS CAST(0 AS BIGINT);
CREATE MACRO f.pg_size_pretty(size) AS size || ' bytes';
CREATE MACRO f.pg_stat_get_numscans(id) AS CAST(0 AS BIGINT);
CREATE MACRO f.pg_relation_is_publishable(id) AS false;
CREATE MACRO f.pg_is_in_recovery() AS false;
CREATE MACRO f.pg_is_other_temp_schema(id) AS false;
CREATE MACRO f.pg_my_temp_schema() AS CAST(0 AS BIGINT);
CREATE MACRO f.pg_postmaster_start_time() AS TIMESTAMP '2000-01-01 00:00:00';
CREATE MACRO f.pg_conf_load_time() AS TIMESTAMP '2000-01-01 00:00:00';
CREATE MACRO f.txid_current() AS CAST(0 AS BIGINT);
CREATE MACRO f.pg_current_xact_id_if_assigned() AS CAST(NULL AS BIGINT);
CREATE MACRO f.inet_server_addr() AS CAST(NULL AS VARCHAR);
CREATE MACRO f.inet_client_addr() AS CAST(NULL AS VARCHAR);
CREATE MACRO f.inet_server_port() AS CAST(NULL AS INTEGER);
CREATE MACRO f.quote_ident(name) AS CASE WHEN regexp_full_match(name, '[a-z_][a-z0-9_]*') THEN name
    ELSE '"' || replace(name, '"', '""') || '"' END;
CREATE MACRO f.quote_literal(value) AS '''' || replace(CAST(value AS VARCHAR), '''', '''''') || '''';
CREATE MACRO f.current_setting(named) AS (SELECT max(_setting) FROM pg._settings WHERE _name = lower(named)),
    (named, missing) AS (SELECT max(_setting) FROM pg._settings WHERE _name = lower(named));
CREATE MACRO f.set_config(name, value, here) AS value;
CREATE MACRO f.to_regclass(named) AS coalesce(TRY_CAST(named AS BIGINT), (SELECT min(_oid) FROM pg._relations WHERE _name =
    regexp_replace(regexp_replace(named, '^"?(public|pg_catalog|information_schema|dpsql)"?\.', ''), '^"|"$', '', 'g')));
CREATE MACRO f.to_regtype(named) AS (SELECT min(_oid) FROM pg._type_names WHERE lower(named) IN (_typname, _spoken));
CREATE MACRO f.to_regnamespace(named) AS (SELECT min(_oid) FROM pg._namespaces WHERE _name = named);
CREATE MACRO f.relation_named(id) AS coalesce((SELECT max(_name) FROM pg._relations WHERE _oid = id), CAST(id AS VARCHAR));
CREATE MACRO f.role_named(id) AS CASE id WHEN 10 THEN 'dpsql' ELSE CAST(id AS VARCHAR) END;
CREATE MACRO f.namespace_named(id) AS coalesce((SELECT max(_name) FROM pg._namespaces WHERE _oid = id), CAST(id AS VARCHAR));
CREATE MACRO f.array_upper(items, dimension) AS len(items);
CREATE MACRO f.array_lower(items, dimension) AS CASE WHEN len(items) > 0 THEN 1 END;
CREATE MACRO f.cardinality(items) AS len(items);
CREATE MACRO f.pg_column_is_updatable(a, b, c) AS false;
CREATE MACRO f.pg_relation_is_updatable(a, b) AS 0;
CREATE MACRO f.pg_sequence_last_value(id) AS CAST(NULL AS BIGINT);
CREATE MACRO f.pg_blocking_pids(id) AS CAST([] AS INTEGER[]);
CREATE MACRO f._pg_expandarray(items) AS TABLE SELECT unnest(items) AS x, unnest(range(1, len(items) + 1)) AS n;
CREATE MACRO f.string_to_array(text, separator) AS string_split(text, separator);
CREATE MACRO f.pg_partition_ancestors(id) AS CAST(id AS BIGINT);
