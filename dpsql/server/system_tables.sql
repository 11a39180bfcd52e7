-- What is the same in every row of a system table; the rows themselves are written by system_tables.py.
UPDATE pg.pg_type SET typnamespace = 11, typowner = 10, typrelid = 0, typisdefined = true, typnotnull = false,
    typtypmod = -1, typndims = 0, typcollation = CASE typcategory WHEN 'S' THEN 100 ELSE 0 END, typispreferred = false,
    typsubscript = '-', typinput = typname || 'in', typoutput = typname || 'out', typreceive = typname || 'recv';
UPDATE pg._type_names SET _spoken = found.spoken FROM (
    SELECT t.oid, e._spoken || '[]' AS spoken FROM pg.pg_type t JOIN pg._type_names e ON t.typelem = e._oid
    WHERE t.typcategory = 'A'
) AS found WHERE found.oid = _oid;
UPDATE pg.pg_settings SET source = 'default', context = 'user', vartype = 'string', boot_val = setting,
    reset_val = setting, pending_restart = false;
INSERT INTO pg.pg_roles (oid, rolname, rolsuper, rolinherit, rolcreaterole, rolcreatedb, rolcanlogin, rolreplication,
    rolconnlimit, rolbypassrls) VALUES (10, 'dpsql', false, true, false, false, false, false, -1, false);
INSERT INTO pg.pg_authid (oid, rolname, rolsuper) VALUES (10, 'dpsql', false);
INSERT INTO pg.pg_user (usesysid, usename, usesuper) VALUES (10, 'dpsql', false);
INSERT INTO pg.pg_tablespace (oid, spcname, spcowner) VALUES (1663, 'pg_default', 10);
INSERT INTO pg.pg_am (oid, amname, amtype) VALUES (2, 'heap', 't'), (403, 'btree', 'i');
INSERT INTO pg.pg_collation (oid, collname, collnamespace, collprovider) VALUES (100, 'default', 11, 'd');
INSERT INTO pg.pg_language (oid, lanname, lanowner) VALUES (14, 'sql', 10);
UPDATE pg.pg_database SET datdba = 10, encoding = 6, datlocprovider = 'c', datistemplate = false, datallowconn = true,
    datconnlimit = -1, dattablespace = 1663, datcollate = 'C', datctype = 'C';
-- Without triggers psql does not look for foreign keys.
UPDATE pg.pg_class SET reltype = 0, reloftype = 0, relowner = 10, relfilenode = 0, reltablespace = 0, relpages = 0,
    relam = CASE relkind WHEN 'r' THEN 2 WHEN 'i' THEN 403 ELSE 0 END, reltuples = -1, relallvisible = 0,
    reltoastrelid = 0, relhasindex = relkind = 'r', relisshared = false, relpersistence = 'p', relchecks = 0,
    relhasrules = false, relhastriggers = relkind = 'r', relhassubclass = false, relrowsecurity = false,
    relforcerowsecurity = false, relispopulated = true, relreplident = 'd', relispartition = false, relrewrite = 0;
UPDATE pg.pg_attribute SET attstattarget = -1, attndims = 0, attcacheoff = -1, attbyval = attlen > 0, attalign = 'd',
    attstorage = CASE atttypid WHEN 25 THEN 'x' ELSE 'p' END, attcollation = CASE atttypid WHEN 25 THEN 100 ELSE 0 END,
    attcompression = '', atthasdef = false, atthasmissing = false, attidentity = '', attgenerated = '',
    attisdropped = false, attislocal = true, attinhcount = 0;
UPDATE pg.pg_constraint SET connamespace = 2200, condeferrable = false, condeferred = false, convalidated = true,
    contypid = 0, conparentid = 0, confupdtype = 'a', confdeltype = 'a', confmatchtype = 's', conislocal = true,
    coninhcount = 0, connoinherit = true;
UPDATE pg.pg_index SET indnatts = len(indkey), indnkeyatts = len(indkey), indisunique = true, indisprimary = true,
    indnullsnotdistinct = false, indisexclusion = false, indimmediate = true, indisclustered = false, indisvalid = true,
    indcheckxmin = false, indisready = true, indislive = true, indisreplident = false,
    indoption = [0 FOR key IN indkey], indclass = [0 FOR key IN indkey], indcollation = [0 FOR key IN indkey];
UPDATE info.columns SET udt_catalog = table_catalog, udt_schema = 'pg_catalog', dtd_identifier = ordinal_position,
    is_self_referencing = 'NO', is_identity = 'NO', is_generated = 'NEVER', is_updatable = 'NO';
UPDATE info.tables SET is_insertable_into = 'NO', is_typed = 'NO';
UPDATE info.table_privileges SET grantor = 'dpsql', grantee = 'PUBLIC', privilege_type = 'SELECT', is_grantable = 'NO';
UPDATE info.table_constraints SET is_deferrable = 'NO', initially_deferred = 'NO', enforced = 'YES';
