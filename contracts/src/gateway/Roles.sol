// SPDX-License-Identifier: MIT
pragma solidity 0.8.30;

import {Ownable} from "@openzeppelin/contracts/access/Ownable.sol";
import {Ownable2Step} from "@openzeppelin/contracts/access/Ownable2Step.sol";
import {Pausable} from "@openzeppelin/contracts/utils/Pausable.sol";

/// @title Roles
///
/// @notice Three roles, and none of them can move a depositor's money without the depositor's signature.
///
/// - The owner appoints the others and ends a pause. Ownership moves in two steps and cannot be renounced.
/// - The pauser stops deposits, settlement and instant withdrawals. It is a hot key for an alarm: it cannot restart.
/// - Relayers submit what depositors signed, and pay the gas.
abstract contract Roles is Ownable2Step, Pausable {
    address public pauser;
    mapping(address account => bool relays) public isRelayer;

    event PauserChanged(address indexed previousPauser, address indexed newPauser);
    event RelayerChanged(address indexed relayer, bool relays);

    error OnlyPauser(address caller, address pauser);
    error OnlyRelayer(address caller);
    error OwnershipCannotBeRenounced();

    modifier onlyRelayer() {
        if (!isRelayer[msg.sender]) revert OnlyRelayer(msg.sender);
        _;
    }

    constructor(address owner_, address pauser_, address relayer_) Ownable(owner_) {
        _setPauser(pauser_);
        _setRelayer(relayer_, true);
    }

    function setPauser(address newPauser) external onlyOwner {
        _setPauser(newPauser);
    }

    function setRelayer(address relayer, bool relays) external onlyOwner {
        _setRelayer(relayer, relays);
    }

    function pause() external {
        if (msg.sender != pauser) revert OnlyPauser(msg.sender, pauser);
        _pause();
    }

    function unpause() external onlyOwner {
        _unpause();
    }

    /// Without an owner a pause would never end and a stolen relayer key could never be dismissed.
    function renounceOwnership() public pure override {
        revert OwnershipCannotBeRenounced();
    }

    function _setPauser(address newPauser) private {
        emit PauserChanged(pauser, newPauser);
        pauser = newPauser;
    }

    function _setRelayer(address relayer, bool relays) private {
        emit RelayerChanged(relayer, relays);
        isRelayer[relayer] = relays;
    }
}
