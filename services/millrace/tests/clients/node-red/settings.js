// One runtime without its editor; the flows lie beside this file.
module.exports = {
    flowFile: "flows.json",
    credentialSecret: false,
    disableEditor: true,
    httpAdminRoot: false,
    httpNodeRoot: false,
    uiHost: "127.0.0.1",
    uiPort: 0,
    telemetry: { enabled: false },
    logging: { console: { level: "info" } },
};
