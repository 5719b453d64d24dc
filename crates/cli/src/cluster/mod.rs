//! `tidegate cluster`: configurations of several nodes, how they are, and a demonstration.

#[cfg(feature = "cluster")]
mod demo;
mod invitation;
#[cfg(feature = "cluster")]
mod triples;

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::arguments::{ClusterArgs, ClusterCommand, ClusterInitArgs, ClusterJoinArgs};
use crate::init::made_up_password;
use invitation::{Invitation, InvitedNode, is_this_machine};
use tidegate_program::out;

pub(crate) fn run(args: &ClusterArgs) -> Result<u8> {
    match &args.command {
        ClusterCommand::Init(args) => init(args).map(|()| 0),
        ClusterCommand::Join(args) => join(args).map(|()| 0),
        #[cfg(feature = "cluster")]
        command => with_engine::run(command),
        #[cfg(not(feature = "cluster"))]
        _ => bail!(
            "this program was built without clusters; use the program of a package, or build it with \"cargo build \
             --release -p tidegate-cli --features cluster\""
        ),
    }
}

fn init(args: &ClusterInitArgs) -> Result<()> {
    let made = Invitation::new(&args.name, &args.nodes, made_up_password()?)?;
    let node = match &args.node {
        Some(name) => made.node(name)?,
        None => made.nodes.first().context("no node")?,
    };
    let file = args.folder.join(format!("{}.invite", args.name));
    if file.exists() {
        bail!("{} is there already, and nothing was changed; choose another --folder", file.display());
    }
    write_node(&args.folder, &made, node)?;
    write_new(&file, &made.text(), 0o600)?;
    let others: Vec<String> = made
        .nodes
        .iter()
        .filter(|other| other.name != node.name)
        .map(|other| {
            format!("  on {}:  tidegate cluster join {}.invite --node {}\n", other.host, args.name, other.name)
        })
        .collect();
    out(&format!(
        "node {} of {}: {}\nThe invitation {} has the cluster's password: carry it to the other machines over a way that nobody reads.\n{}{}",
        node.name,
        args.name,
        args.folder.join("tidegate.toml").display(),
        file.display(),
        others.concat(),
        next(node, &args.folder)
    ));
    Ok(())
}

fn join(args: &ClusterJoinArgs) -> Result<()> {
    let at = args.invitation.display();
    let text = std::fs::read_to_string(&args.invitation).with_context(|| format!("{at} cannot be read"))?;
    let made = Invitation::parse(&text).with_context(|| format!("{at}"))?;
    let node = made.node(&args.node)?;
    write_node(&args.folder, &made, node)?;
    let file = args.folder.join("tidegate.toml");
    out(&format!("node {} of {}: {}\n{}", node.name, made.cluster, file.display(), next(node, &args.folder)));
    Ok(())
}

/// What to type.
fn next(node: &InvitedNode, folder: &Path) -> String {
    let config = crate::arguments::in_shell(&folder.join("tidegate.toml").display().to_string());
    let users = if is_this_machine(&node.host) {
        String::new()
    } else {
        format!("  tidegate user add NAME -c {config}   (one on every node; later changes at the one that serves)\n")
    };
    format!("Then, here:\n{users}  tidegate -c {config}\n  tidegate cluster status -c {config}\n")
}

fn write_node(folder: &Path, made: &Invitation, node: &InvitedNode) -> Result<()> {
    std::fs::create_dir_all(folder).with_context(|| format!("{} cannot be made", folder.display()))?;
    let (config, password) = (folder.join("tidegate.toml"), folder.join("cluster.password"));
    for path in [&config, &password] {
        if path.exists() {
            bail!("{} is there already, and nothing was changed; choose another --folder", path.display());
        }
    }
    write_new(&password, &format!("{}\n", made.password), 0o600)?;
    // Last: a folder where something went wrong has none.
    write_new(&config, &made.configuration(node), 0o644)
}

fn write_new(path: &Path, text: &str, mode: u32) -> Result<()> {
    let made = std::fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(path);
    let written = made.and_then(|mut file| file.write_all(text.as_bytes()).and_then(|()| file.sync_all()));
    written.with_context(|| format!("{} cannot be written", path.display()))
}

/// What asks the engine, or starts one.
#[cfg(feature = "cluster")]
mod with_engine {
    use anyhow::{Context, Result, bail};
    use tidegate_program::out;
    use tidegate_server::cluster::{self, managed, status, why};
    use tidegate_server::config::{Sources, load};
    use tidegate_server::plan::cluster::{ClusterPlan, plan};

    use crate::arguments::{ClusterCommand, ClusterLeaveArgs, ClusterStatusArgs, FileArgs};

    pub(super) fn run(command: &ClusterCommand) -> Result<u8> {
        match command {
            ClusterCommand::Status(args) => show(args),
            ClusterCommand::Why(args) => why(args),
            ClusterCommand::Leave(args) => leave(args).map(|()| 0),
            ClusterCommand::Demo(args) => super::demo::run(args),
            ClusterCommand::EngineChild { parent, program, arguments } => {
                let error = managed::become_engine(*parent, program, arguments);
                Err(error).with_context(|| format!("{} cannot be run", program.display()))
            }
            ClusterCommand::Init(_) | ClusterCommand::Join(_) => Ok(0),
        }
    }

    fn planned(file: &FileArgs) -> Result<ClusterPlan> {
        let loaded = load(&Sources::of_process(file.config.clone(), Vec::new()))?;
        let Some(plan) = plan(&loaded)? else {
            bail!("this configuration is of no cluster: set cluster.name, or name the file of a node with -c FILE");
        };
        Ok(plan)
    }

    fn show(args: &ClusterStatusArgs) -> Result<u8> {
        let plan = planned(&args.file)?;
        let view = cluster::look(&plan)?;
        if args.json {
            out(&format!("{:#}\n", status::json(&view, &plan)));
        } else {
            out(&status::text(&view, &plan));
        }
        Ok(u8::from(!status::is_well(&view)))
    }

    fn why(args: &ClusterStatusArgs) -> Result<u8> {
        let plan = planned(&args.file)?;
        let view = cluster::look(&plan)?;
        if args.json {
            out(&format!("{:#}\n", why::json(&view, &plan)));
        } else {
            out(&why::text(&view, &plan, std::time::SystemTime::now()));
        }
        Ok(u8::from(!status::is_well(&view)))
    }

    fn leave(args: &ClusterLeaveArgs) -> Result<()> {
        let plan = planned(&args.file)?;
        let node = match &args.node {
            Some(name) => name.parse()?,
            None => plan.node.clone(),
        };
        let view = cluster::look(&plan)?;
        if status::is_here(&view, &node) {
            bail!("node {node} is alive: end it first (tidegate drain, or its supervisor); another takes over at once");
        }
        let was_there = cluster::forget(&plan, &node)?;
        let words = if was_there { "is out of the list" } else { "was not in the list" };
        out(&format!(
            "node {node} of {} {words}. Its data is in its folder; a managed engine beside it counts until the others' \
             cluster.peers do not name it any more.\n",
            plan.name
        ));
        Ok(())
    }
}
